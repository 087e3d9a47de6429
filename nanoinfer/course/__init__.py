"""What the notebooks share: questions to answer before the answer shows, hints that open, recorded runs.

from nanoinfer.course import predict, hint, recorded
"""

from nanoinfer.course.markup import hint
from nanoinfer.course.question import predict
from nanoinfer.course.recordings import recorded

__all__ = ["hint", "predict", "recorded"]
