"""A generator of small chats and stories: the training text of the tiny model."""
