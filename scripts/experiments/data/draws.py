"""What generated tasks draw at random: people, days, codes, and the words of templates."""

from __future__ import annotations

import random
from datetime import date, timedelta


def split_words(text: str) -> list[str]:
    return text.split()


FIRST_NAMES = split_words(
    "Anna Ben Carla David Elena Felix Greta Hugo Ines Jonas Katja Leon Mara Nico Olga Paul Rita Simon Tara Uwe Vera "
    "Walter Yara Zoe Amir Bianca Cyril Dora Emil Fiona Georg Hanna Ivan Julia Karim Laura Milan Nora Oscar Petra "
    "Quentin Rosa Stefan Tom Ursula Viktor Wanda Xenia Yusuf Zora Alice Bruno Chiara Dario Edith Frank Gina Henry Ida "
    "Jakob"
)
ONSETS = split_words("B Br Ch D Dr F Fl G Gr H J K Kl Kr L M N P Pr R S Sch St T Tr V W Z")
MIDDLES = split_words("a e i o u ar er il an en or au ei ol un")
ENDINGS = split_words(
    "ber ck den der feld ger hoff ker ler lin mann mer ner now rich sen ski son stein ter ton vic wald witz"
)
COMPANIES = split_words("Supply Logistics Foods Systems Paper Energy Textiles Motors Optics Trading Media Tools")
FORMS = split_words("GmbH Ltd Inc SA BV Group")
ITEMS = split_words(
    "chairs lamps cables printers desks monitors bottles helmets tyres cameras filters pumps jackets batteries"
)
CITIES = split_words("Oslo Lyon Graz Porto Turin Leeds Ghent Basel Gdansk Malmo Bilbao Tartu Split Brno Cork Utrecht")
TEAMS = split_words("sales support finance legal research logistics marketing hosting")
STREETS = split_words("Mill Church Station Park Lake Hill Garden Bridge Market School")
VERBS, NOUNS = (
    split_words("Copying Reading Parsing Learning Searching"),
    split_words("Words Graphs Trees Sounds Images"),
)
VENUES = split_words("ACL EMNLP NAACL Nature Science ICML")
COUNTRIES = {"Austria": "AT", "Spain": "ES", "Norway": "NO", "Japan": "JP", "Chile": "CL", "Poland": "PL"}
STATUS = {"was sent": "SENT", "has arrived": "DONE", "is at customs": "HELD", "could not be delivered": "FAIL"}
MONTHS = split_words("January February March April May June July August September October November December")


def draw_surname(draw: random.Random) -> str:
    return (
        draw.choice(ONSETS)
        + "".join(draw.choice(MIDDLES) for _ in range(draw.choice((1, 1, 2))))
        + draw.choice(ENDINGS)
    )


def draw_person(draw: random.Random) -> tuple[str, str]:
    return draw.choice(FIRST_NAMES), draw_surname(draw)


def draw_day(draw: random.Random) -> date:
    return date(2015, 1, 1) + timedelta(days=draw.randrange(4000))


def write_day(draw: random.Random, day: date) -> str:
    """A date as people write it, with the month's name."""
    month = MONTHS[day.month - 1]
    return draw.choice(
        (f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}", f"{day.day} {month[:3]} {day.year}")
    )


def draw_code(draw: random.Random) -> str:
    letters = "".join(draw.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(2))
    return f"{letters}-{draw.randrange(1000, 99999)}"
