"""Five plots in which something is found, made or won."""

from __future__ import annotations

from .characters import Child, Friend, draw_friend
from .draw import Draw, article, capitalised
from .plots import Plot, ending, likes, opening, weather
from .words import COLORS, FEEL_BAD, GROWN_UPS, HIDING_SPOTS, PLACES, PROJECTS, TIMES, TOYS, at


def lost_toy(draw: Draw, child: Child, friend: Friend) -> Plot:
    """A toy is lost; after two wrong places a friend helps to find it."""
    toy, color = draw.choice(TOYS), draw.choice(COLORS)
    described = f"{color} {toy}"
    first, second, hiding_place = draw.sample(PLACES, 3)
    mood = draw.choice(FEEL_BAD)
    return Plot(
        sentences=[
            opening(draw, child),
            likes(draw, child, described),
            f"{draw.choice(TIMES)}, the {toy} was gone!{weather(draw)}",
            draw.one_of(
                f'"Where is my {toy}?" {child.name} cried.',
                f'"Oh no, I have lost my {toy}!" said {child.name}.',
                f'{child.name} felt {mood}. "I cannot find my {toy}," {child.he} said.',
            ),
            draw.one_of(
                f"First, {child.he} looked {at(first)}, but it was not there.",
                f"{capitalised(child.he)} went to {first} and looked everywhere. There was no {toy}.",
            ),
            draw.one_of(
                f"Then {child.he} looked {at(second)}, but it was not there either.",
                f"Next, {child.he} ran to {second}. Still no {toy}.",
            ),
            draw.one_of(f"On the way, {child.he} met {friend.title}.", f"Just then, {friend.title} came along."),
            draw.one_of(
                f'"Why are you so {mood}?" asked {friend.name}.', f'"What is the matter?" {friend.name} asked.'
            ),
            draw.one_of(
                f'"I lost my {described}," said {child.name}.', f'"My {described} is missing," {child.name} answered.'
            ),
            draw.one_of(
                f'"I saw {article(described)} {at(hiding_place)}," said {friend.name}. "Follow me!"',
                f'"Let us look {at(hiding_place)} together," said {friend.name}.',
            ),
            f"They went to {hiding_place}, and there was the {toy}, {HIDING_SPOTS[hiding_place]}.",
            draw.one_of(
                f'"Thank you, {friend.name}!" said {child.name}. "You are a good friend."',
                f'{child.name} hugged {friend.name} and said, "Thank you for helping me."',
            ),
            ending(draw, child, friend),
        ],
        questions=[
            (f"What did {child.name} lose?", f"{child.name} lost {child.his} {described}."),
            (f"What color was the {toy}?", f"The {toy} was {color}."),
            (f"Who helped {child.name}?", f"{friend.title} helped {child.name}."),
            (f"Where was the {toy}?", f"The {toy} was {at(hiding_place)}, {HIDING_SPOTS[hiding_place]}."),
        ],
        topics=[
            f"a lost {toy}",
            f"{child.name} and a {described}",
            f"a {child.kind} who loses {article(toy)}",
            f"{article(friend.species)} who helps find {article(toy)}",
        ],
        morals=("Always ask a friend for help.", "A good friend helps you look."),
    )


def lost_way(draw: Draw, child: Child, friend: Friend) -> Plot:
    """The child is lost on a walk; a friend knows a sign that leads home."""
    place = draw.one_of("the forest", "the hill", "the beach", "the market", "a big field")
    sign = draw.one_of(
        "the river",
        "the bright star",
        "the stone path",
        "the smoke from the chimney",
        "the sound of the bell",
        "the row of lamps",
    )
    grown_up = draw.choice(GROWN_UPS)
    return Plot(
        sentences=[
            opening(draw, child),
            f"{draw.choice(TIMES)}, {child.he} went for a walk {at(place)}.{weather(draw)}",
            draw.one_of(
                f"{capitalised(child.he)} walked and walked, until {child.he} did not know where {child.he} was.",
                f"{capitalised(child.he)} followed a butterfly and forgot to look at the way.",
            ),
            draw.one_of(
                f'"I am lost," {child.he} said, and {child.he} began to cry.',
                f"It was getting late, and {child.he} felt {draw.choice(FEEL_BAD)}.",
            ),
            f"Then {friend.title} came out from behind a bush.",
            draw.one_of(f'"Where do you live?" asked {friend.name}.', f'"Are you lost?" asked {friend.name}.'),
            draw.one_of(
                f'"In the house with the {draw.choice(COLORS)} door," said {child.name}.',
                f'"Yes, and I want to go home," said {child.name}.',
            ),
            draw.one_of(
                f'"Then follow {sign}," said {friend.name}. "It leads to the village."',
                f'"Look, there is {sign}," said {friend.name}. "If we follow it, we will find your house."',
            ),
            f"They followed {sign} together.",
            f"Soon {child.name} saw {child.his} {grown_up} standing at the door.",
            draw.one_of(
                f'"We were looking for you!" said {child.his} {grown_up}.',
                f"{capitalised(child.his)} {grown_up} gave {child.him} a big hug.",
            ),
            draw.one_of(
                f"{friend.name} was invited to stay for supper.",
                f"{child.name} waved and thanked {friend.name} again and again.",
            ),
            ending(draw, child, friend),
        ],
        questions=[
            (f"Where did {child.name} get lost?", f"{child.name} got lost {at(place)}."),
            ("What did they follow?", f"They followed {sign}."),
            (f"Who helped {child.name}?", f"{friend.title} helped {child.name}."),
            ("Who was waiting at the door?", f"{capitalised(child.his)} {grown_up} was waiting at the door."),
        ],
        topics=[
            "getting lost",
            "finding the way home",
            f"a {child.kind} who gets lost",
            f"{article(friend.species)} who knows the way",
        ],
        morals=("If you are lost, stay calm and ask for help.", "Look where you are going."),
    )


def building(draw: Draw, child: Child, friend: Friend) -> Plot:
    """Three parts are found in three places, and together they build something."""
    project, (first, second, third), outcome = draw.choice(PROJECTS)
    first_place, second_place, last_place = draw.sample(PLACES, 3)
    return Plot(
        sentences=[
            opening(draw, child),
            f"{draw.choice(TIMES)}, {child.he} wanted to build {project}.{weather(draw)}",
            draw.one_of(
                f'"I need {first}, {second} and {third}," said {child.name}.',
                f'"First I must find {first}, {second} and {third}," {child.he} said.',
            ),
            f"{capitalised(child.he)} found {first} {at(first_place)}.",
            draw.one_of(
                f"{friend.title} gave {child.him} {second}.",
                f"{friend.title} knew where to get {second}, and they went to {second_place} together.",
            ),
            f"At last, they found {third} {at(last_place)}.",
            draw.one_of(
                "They worked all day long.",
                "They worked slowly and carefully.",
                "It was hard work, but they did not stop.",
            ),
            draw.one_of(
                "Once it fell apart, and they had to start again.",
                "At first it did not look right, so they tried another way.",
                "When they were tired, they rested and drank some water.",
            ),
            draw.one_of(f"When the sun went down, {project} was ready.", f"In the end, they had made {project}."),
            f"{child.name} and {friend.name} {outcome}.",
            draw.one_of(
                f'"We make a good team," said {friend.name}.',
                f'"I could not have done it without you," said {child.name}.',
            ),
            ending(draw, child, friend),
        ],
        questions=[
            (f"What did {child.name} build?", f"{child.name} built {project}."),
            ("What did they need?", f"They needed {first}, {second} and {third}."),
            (f"Who helped {child.name}?", f"{friend.title} helped {child.name}."),
            (f"Where did {child.name} find {first}?", f"{capitalised(child.he)} found it {at(first_place)}."),
        ],
        topics=[
            f"building {project}",
            f"a {child.kind} who builds {project}",
            project,
            f"making something with {article(friend.species)}",
        ],
        morals=("Working together makes hard work easy.", "Do not give up when something goes wrong."),
    )


def planting(draw: Draw, child: Child, friend: Friend) -> Plot:
    """A tiny seed needs water and patience."""
    seed = draw.one_of("seed", "bean", "bulb", "nut")
    result = draw.one_of(
        "a tall sunflower",
        "a red rose",
        "a bean plant that reached the roof",
        "a small apple tree",
        "a white lily",
        "a row of pink flowers",
    )
    place = draw.one_of("the garden", "a big pot", "the corner of the yard", "a sunny spot by the fence")
    days = draw.one_of("three", "five", "seven", "ten", "twelve")
    return Plot(
        sentences=[
            opening(draw, child),
            f"{draw.choice(TIMES)}, {friend.title} gave {child.him} a tiny {seed}.{weather(draw)}",
            draw.one_of(f'"What is it?" asked {child.name}.', f'"It is so small," said {child.name}.'),
            draw.one_of(
                f'"Put it in the ground and give it water every day," said {friend.name}.',
                f'"Be patient, and you will see," said {friend.name}.',
            ),
            f"{child.name} planted the {seed} {at(place)}.",
            draw.one_of("The next day, there was nothing to see.", "One day went by, and nothing happened."),
            draw.one_of(
                f'"Why does it not grow?" {child.he} asked.',
                f"{child.name} was {draw.choice(FEEL_BAD)}, but {child.he} kept giving it water.",
            ),
            f"After {days} days, a little green leaf came out of the ground.",
            draw.one_of("It grew and grew in the warm sun.", "Every day it was a bit taller."),
            f"At the end of the summer, it had become {result}.",
            draw.one_of(
                f'"It was worth the wait," said {child.name}.', f'"See what time and care can do," said {friend.name}.'
            ),
            ending(draw, child, friend),
        ],
        questions=[
            (f"What did {friend.name} give to {child.name}?", f"{friend.name} gave {child.him} a tiny {seed}."),
            (f"Where did {child.name} plant it?", f"{child.name} planted it {at(place)}."),
            ("What did it become?", f"It became {result}."),
            ("How many days did it take to see a leaf?", f"It took {days} days."),
        ],
        topics=["a seed", "being patient", f"a {child.kind} who plants a {seed}", result],
        morals=("Good things take time.", "Be patient and take care of what you love."),
    )


def race(draw: Draw, child: Child, friend: Friend) -> Plot:
    """The slow friend wins against a fast one that is too sure of itself. The child only starts the race."""
    slow, fast = friend, draw_friend(draw)
    while fast.species == slow.species or fast.name == slow.name:
        fast = draw_friend(draw)
    start, goal = draw.sample(PLACES, 2)
    prize = draw.one_of("a golden cup", "a basket of apples", "a big cake", "a blue ribbon")
    return Plot(
        sentences=[
            f"{fast.title} was very fast, and {fast.name} liked to tell everyone about it.",
            f"{slow.title} was slow, but {slow.name} was also {slow.trait}.",
            f"{draw.choice(TIMES)}, {child.name}, {article(child.trait)} {child.kind}, said, "
            f'"Let us have a race from {start} to {goal}. The winner gets {prize}."',
            draw.one_of(f'"I will win," said {fast.name}. "That is easy."', f"{fast.name} laughed at {slow.name}."),
            draw.one_of("One, two, three, go!", f'"Ready, steady, go!" shouted {child.name}.'),
            f"{fast.name} ran ahead at once and was soon far away.",
            draw.one_of(
                f'"I have so much time," thought {fast.name}, and lay down to sleep.',
                f"Halfway there, {fast.name} stopped to eat and to play.",
            ),
            draw.one_of(f"{slow.name} did not stop.", f"{slow.name} kept going, step by step."),
            f"When {fast.name} looked up, {slow.name} was already at {goal}.",
            draw.one_of(
                f'"{slow.name} wins!" said {child.name}, and handed over {prize}.',
                f"{slow.name} had won the race and got {prize}.",
            ),
            draw.one_of(
                f'"I will never laugh at you again," said {fast.name}.',
                f"{slow.name} shared {prize} with {fast.name}, and they became friends.",
            ),
        ],
        questions=[
            ("Who won the race?", f"{slow.title} won the race."),
            ("What was the prize?", f"The prize was {prize}."),
            ("Where did the race end?", f"The race ended at {goal}."),
            ("Who was fast?", f"{fast.title} was fast."),
        ],
        topics=[
            "a race",
            f"a slow {slow.species} and a fast {fast.species}",
            f"{article(slow.species)} who wins a race",
        ],
        morals=("Slow and steady wins the race.", "Do not laugh at others."),
    )
