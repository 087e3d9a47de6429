"""Five plots in which somebody is kind, brave or honest."""

from __future__ import annotations

from .characters import Child, Friend, draw_friend
from .draw import Draw, article, capitalised
from .plots import Plot, ending, opening, weather
from .words import COLORS, FEARS, FEEL_BAD, FOODS, GROWN_UPS, PLACES, TIMES, TOYS, TROUBLES, at


def sharing(draw: Draw, child: Child, friend: Friend) -> Plot:
    """The child has something to eat and shares it with a hungry friend."""
    food = draw.choice(FOODS)
    place = draw.choice(PLACES)
    grown_up = draw.choice(GROWN_UPS)
    mood = draw.choice(FEEL_BAD)
    return Plot(
        sentences=[
            opening(draw, child),
            f"{draw.choice(TIMES)}, {child.his} {grown_up} gave {child.him} {article(food)}.{weather(draw)}",
            draw.one_of(
                f"{child.name} carried the {food} to {place}.",
                f"{capitalised(child.he)} took it to {place} to eat it there.",
            ),
            draw.one_of(
                f"There {child.he} saw {friend.title}, who looked {mood} and hungry.",
                f"{friend.title} was sitting there all alone, looking {mood}.",
            ),
            draw.one_of(
                f'"I have nothing to eat," said {friend.name}.',
                f'"I am so hungry," {friend.name} said in a small voice.',
            ),
            draw.one_of(
                f"At first, {child.name} did not want to share, because the {food} smelled so good.",
                f"{child.name} looked at the {food}. It was not very big.",
            ),
            draw.one_of(
                f"But then {child.he} thought about how it feels to be hungry.",
                f"Then {child.he} remembered what {child.his} {grown_up} always said: sharing is caring.",
            ),
            draw.one_of(
                f'"You can have half," said {child.name}.',
                f'"Here, let us share it," {child.name} said, and broke the {food} in two.',
            ),
            draw.one_of(
                f"{friend.name} ate every bit and smiled.",
                f'"This is the best {food} I have ever had!" said {friend.name}.',
            ),
            draw.one_of(
                f"The {food} tasted even better because they ate it together.",
                "They sat side by side and ate until every crumb was gone.",
            ),
            ending(draw, child, friend),
        ],
        questions=[
            (f"What did {child.name} share?", f"{child.name} shared {article(food)}."),
            ("Who was hungry?", f"{friend.title} was hungry."),
            (f"Where did {child.name} go?", f"{child.name} went to {place}."),
            (f"Who gave {child.name} the {food}?", f"{capitalised(child.his)} {grown_up} gave it to {child.him}."),
        ],
        topics=[
            "sharing",
            article(food),
            f"a {child.kind} who shares {article(food)}",
            f"a hungry {friend.species}",
        ],
        morals=("Sharing makes everything better.", "It is good to share."),
    )


def being_brave(draw: Draw, child: Child, friend: Friend) -> Plot:
    """A friend helps the child to try what it is afraid of."""
    fear, why_harmless = draw.choice(FEARS)
    draw.choice(PLACES)  # no sentence names it, but leaving the draw out would change every later one
    return Plot(
        sentences=[
            opening(draw, child),
            draw.one_of(
                f"But there was one thing {child.he} did not like. {capitalised(child.he)} was afraid of {fear}.",
                f"There was only one problem: {child.name} was scared of {fear}.",
            ),
            f"{draw.choice(TIMES)}, {child.his} friend {friend.title} came to visit.{weather(draw)}",
            draw.one_of(
                f'"Come and play with me," said {friend.name}.', f'"Let us go on an adventure!" said {friend.name}.'
            ),
            draw.one_of(
                f'"I cannot," said {child.name}. "I am afraid of {fear}."',
                f'{child.name} shook {child.his} head. "I am too scared of {fear}," {child.he} said.',
            ),
            draw.one_of(
                f'"I was afraid too, once," said {friend.name}. "I will stay right next to you."',
                f'"Hold on to me," said {friend.name}, "and we will do it together, one step at a time."',
            ),
            draw.one_of(
                f"{child.name} took a deep breath.", f"{child.name} closed {child.his} eyes and counted to three."
            ),
            f"{capitalised(child.he)} tried it, and soon {child.he} saw that {why_harmless}.",
            draw.one_of(f'"I did it!" {child.he} shouted.', f'"That was not so bad," said {child.name} with a smile.'),
            draw.one_of(f'"I knew you could," said {friend.name}.', f"{friend.name} was very proud of {child.him}."),
            ending(draw, child, friend),
        ],
        questions=[
            (f"What was {child.name} afraid of?", f"{child.name} was afraid of {fear}."),
            ("Who came to visit?", f"{friend.title} came to visit."),
            (f"How did {child.name} become brave?", f"{friend.name} stayed with {child.him}, and {child.he} tried it."),
        ],
        topics=["being brave", fear, f"a {child.kind} who is afraid of {fear}", f"a brave {child.kind}"],
        morals=("Being brave means trying even when you are scared.", "Friends make us brave."),
    )


def rescue(draw: Draw, child: Child, friend: Friend) -> Plot:
    """A friend is in trouble, and the child comes with the right tool."""
    trouble, tool = draw.choice(TROUBLES)
    place = draw.choice(PLACES)
    grown_up = draw.choice(GROWN_UPS)
    return Plot(
        sentences=[
            opening(draw, child),
            f"{draw.choice(TIMES)}, {child.he} was walking near {place}.{weather(draw)}",
            draw.one_of(
                f'Suddenly, {child.he} heard a small voice. "Help! Help!"',
                f'Then {child.he} heard someone calling, "Please help me!"',
            ),
            f"It was {friend.title}, and {friend.name} was {trouble}.",
            draw.one_of(
                f'"Do not worry," said {child.name}. "I will help you."',
                f'"Stay calm," {child.name} called. "I will be right back."',
            ),
            draw.one_of(
                f"{capitalised(child.he)} ran home to get {tool}.",
                f"{capitalised(child.he)} asked {child.his} {grown_up} for {tool}.",
            ),
            draw.one_of(
                f"Slowly and carefully, {child.he} used {tool} to set {friend.name} free.",
                f"With {tool}, it did not take long, and {friend.name} was safe again.",
            ),
            draw.one_of(
                f'"You saved me!" said {friend.name}.',
                f'"Thank you, {child.name}," said {friend.name}. "I was so afraid."',
            ),
            draw.one_of(
                f'"I am glad you are safe," said {child.name}.',
                f'"Anyone would have done the same," said {child.name}.',
            ),
            ending(draw, child, friend),
        ],
        questions=[
            ("Who needed help?", f"{friend.title} needed help."),
            (f"What happened to {friend.name}?", f"{friend.name} was {trouble}."),
            (f"What did {child.name} use?", f"{child.name} used {tool}."),
            (f"Where was {child.name} walking?", f"{child.name} was walking near {place}."),
        ],
        topics=[
            "helping others",
            f"{article(friend.species)} who needs help",
            f"{article(friend.species)} {trouble}",
            f"a {child.kind} who saves {article(friend.species)}",
        ],
        morals=("When someone is in trouble, help them.", "Small people can do big things."),
    )


def telling_the_truth(draw: Draw, child: Child, friend: Friend) -> Plot:
    """Something breaks in the house, and the child says so."""
    grown_up = draw.choice(GROWN_UPS)
    broken = draw.one_of("vase", "cup", "plate", "window", "lamp", "bowl", "clock", "mirror")
    color = draw.choice(COLORS)
    return Plot(
        sentences=[
            opening(draw, child),
            f"{draw.choice(TIMES)}, {child.he} was playing with {friend.title} inside the house.{weather(draw)}",
            f"They ran too fast, and the {color} {broken} fell down and broke.",
            draw.one_of(f"{child.name} felt {draw.choice(FEEL_BAD)}.", f"{child.name} did not know what to do."),
            draw.one_of(f'"Let us hide it," said {friend.name}.', f'"Nobody saw us," {friend.name} said quietly.'),
            draw.one_of(
                f'"No," said {child.name}. "We must tell the truth."',
                f"{child.name} thought about it, but {child.he} knew that hiding it was wrong.",
            ),
            f"So {child.he} went to {child.his} {grown_up}.",
            draw.one_of(
                f'"I am sorry. I broke the {broken}," {child.he} said.',
                f'"The {broken} is broken, and it was my fault," said {child.name}.',
            ),
            draw.one_of(
                f'"Thank you for telling me the truth," said {child.his} {grown_up}. "We can fix it together."',
                f'{capitalised(child.his)} {grown_up} was not angry. "Everyone makes mistakes," '
                f"{draw.one_of('came the answer', 'was the reply')}.",
            ),
            draw.one_of(
                f"They glued the pieces, and the {broken} looked almost new.",
                f"Together they cleaned up the pieces and bought a new {broken}.",
            ),
            ending(draw, child, friend),
        ],
        questions=[
            ("What broke?", f"The {color} {broken} broke."),
            (f"Who did {child.name} tell?", f"{child.name} told {child.his} {grown_up}."),
            (f"What color was the {broken}?", f"The {broken} was {color}."),
            (f"Who was playing with {child.name}?", f"{friend.title} was playing with {child.name}."),
        ],
        topics=[
            "telling the truth",
            "saying sorry",
            f"a broken {broken}",
            f"a {child.kind} who breaks {article(broken)}",
        ],
        morals=("It is always better to tell the truth.", "Saying sorry is the first step."),
    )


def trade(draw: Draw, child: Child, friend: Friend) -> Plot:
    """Two fair trades bring the child what it wanted from the start."""
    owned_toy, offered_toy, wanted_toy = toys = draw.sample(TOYS, 3)
    owned, offered, wanted = (f"{color} {toy}" for color, toy in zip(draw.sample(COLORS, 3), toys, strict=True))
    first_place, second_place = draw.sample(PLACES, 2)
    other = draw_friend(draw)
    while other.name == friend.name:
        other = draw_friend(draw)
    return Plot(
        sentences=[
            opening(draw, child),
            f"{capitalised(child.he)} had {article(owned)}, but {child.he} really wanted {article(wanted)}.",
            f"{draw.choice(TIMES)}, {child.he} went to {first_place} and met {friend.title}.{weather(draw)}",
            draw.one_of(
                f'"I like your {owned_toy}," said {friend.name}. "I will give you my {offered} for it."',
                f'"Will you trade your {owned_toy} for my {offered}?" asked {friend.name}.',
            ),
            draw.one_of(
                f'"Yes," said {child.name}, and they traded.',
                f"{child.name} agreed, and now {child.he} had {article(offered)}.",
            ),
            f"Later, {at(second_place)}, {child.he} met {other.title}, who had {article(wanted)}.",
            draw.one_of(
                f'"I have always wanted {article(offered)}!" said {other.name}.',
                f'"May I have your {offered_toy}?" asked {other.name}. "You can have my {wanted_toy}."',
            ),
            f"So {child.name} gave away the {offered_toy} and got the {wanted}.",
            draw.one_of(
                f'"Now everyone has what they wanted," said {child.name}.', "Everybody was happy with the trade."
            ),
            ending(draw, child),
        ],
        questions=[
            (f"What did {child.name} want?", f"{child.name} wanted {article(wanted)}."),
            (
                f"What did {friend.name} give to {child.name}?",
                f"{friend.name} gave {child.him} {article(offered)}.",
            ),
            (f"Who had the {wanted_toy}?", f"{other.title} had the {wanted_toy}."),
            (f"What did {child.name} have at first?", f"At first, {child.name} had {article(owned)}."),
        ],
        topics=[
            "a trade",
            f"trading {article(owned_toy)}",
            f"a {child.kind} who wants {article(wanted_toy)}",
            article(wanted),
        ],
        morals=("A fair trade makes everyone happy.", "Ask politely, and you may get what you wish for."),
    )
