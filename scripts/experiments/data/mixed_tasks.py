"""Generated tasks whose outputs mix what is copied, joined, cut, respelled and generated: bills to fields, people to
records, log lines to templates, mails to fields, Java to Python. Like what a company would bring, and free of anyone's
data.

Surnames, numbers, codes and paths are composed at random for each pair, so that most of a test set's were never seen
in training; first names, cities and items are drawn from lists.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from .draws import (
    CITIES,
    COMPANIES,
    COUNTRIES,
    FORMS,
    ITEMS,
    NOUNS,
    STATUS,
    STREETS,
    TEAMS,
    VENUES,
    VERBS,
    draw_code,
    draw_day,
    draw_person,
    draw_surname,
    split_words,
    write_day,
)
from .respelled_tasks import (
    make_account,
    make_date,
    make_phone,
    make_redaction,
    make_russian_letter,
    make_russian_order,
    make_scan,
    make_sentence,
    make_spoken,
    make_thai_booking,
)
from .rows import Row

SIZES = {"train": 800, "validation": 100, "test": 300}


def make_bill(draw: random.Random) -> Row:
    """Sums lose their separators of thousands, dates become ISO dates."""
    company = f"{draw_surname(draw)} {draw.choice(COMPANIES)} {draw.choice(FORMS)}"
    cents = draw.choice((draw.randrange(100, 10**5), draw.randrange(10**5, 10**8)))
    amount = f"{cents // 100:,}.{cents % 100:02}"
    day, number = draw_day(draw), draw_code(draw)
    currency = draw.choice(("EUR", "USD", "CHF"))
    text = draw.choice(
        (
            f"Invoice {number} of {write_day(draw, day)}: {company} asks for {currency} {amount}.",
            f"{company}, bill no. {number}, total {amount} {currency}, due {write_day(draw, day)}",
            f"Please pay {currency} {amount} to {company} by {write_day(draw, day)} (reference {number}).",
            f"{write_day(draw, day)} - {company} - amount due: {amount} {currency} - ref {number}",
        )
    )
    return {
        "text": text,
        "summary": f"vendor={company} | number={number} | date={day.isoformat()} | total={amount.replace(',', '')} | "
        f"currency={currency}",
    }


def make_person(draw: random.Random) -> Row:
    """The surname in capitals, a user name, an ISO date."""
    first, last = draw_person(draw)
    born, team, city = draw_day(draw), draw.choice(TEAMS), draw.choice(CITIES)
    text = draw.choice(
        (
            f"{first} {last} joined {team} in {city} on {write_day(draw, born)}.",
            f"New in {team}: {first} {last}, from {city}, starts {write_day(draw, born)}",
            f"On {write_day(draw, born)} {first} {last} moved to {city} for {team}.",
        )
    )
    return {
        "text": text,
        "summary": f"{last.upper()}, {first}; {first.lower()}.{last.lower()}; {first[0].lower()}{last.lower()}; "
        f"{team}; {born.isoformat()}",
    }


def make_log_line(draw: random.Random) -> Row:
    """The template of a line, its error class in snake case, and the values."""
    ip = ".".join(str(draw.randrange(1, 255)) for _ in range(4))
    path = "/" + "/".join(
        draw.choice(("var", "srv", "opt", "data", "home", "tmp", draw_surname(draw).lower())) for _ in range(3)
    )
    file = f"{draw_surname(draw).lower()}.{draw.choice(('log', 'csv', 'json', 'db'))}"
    error = (
        draw.choice(("Disk", "Socket", "Parse", "Auth", "Cache", draw_surname(draw)))
        + draw.choice(("Full", "Timeout", "Lost", "Denied", "Broken"))
        + "Error"
    )
    number, user = draw.randrange(100, 99999), draw_surname(draw).lower()
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in error).lstrip("_")
    kind = draw.randrange(4)
    lines = (
        (
            f"{error}: cannot write {path}/{file} ({number} bytes)",
            f"{snake}: cannot write * ({{}} bytes) -> {file}, {number}",
        ),
        (
            f"user {user} from {ip} failed after {number} ms: {error}",
            f"{snake}: user * from * failed after * ms -> {user}, {ip}, {number}",
        ),
        (f"[{ip}] {error} while reading {file} in {path}", f"{snake}: while reading * in * -> {file}, {path}, {ip}"),
        (
            f"retry {number} of job {user}-{number % 97} raised {error}",
            f"{snake}: retry * of job * -> {number}, {user}-{number % 97}",
        ),
    )
    text, summary = lines[kind]
    return {"text": text, "summary": summary.replace("{}", "*")}


_FILLERS = (
    "I hope this finds you well after the busy weeks behind us.",
    "As you know, the warehouse was closed for repairs until yesterday.",
    "We talked about it on the phone, but nobody wrote it down.",
    "The last delivery was late, and two boxes were open when they arrived.",
    "Our accounting has changed, so please use the new address on the bill.",
    "If anything is unclear, call me at any time before noon.",
    "Many thanks for your patience, and greetings to the whole team.",
    "There is no hurry, yet we would like to plan the next months.",
    "The colleagues from the other office send their regards as well.",
    "Sorry for the short notice; it was decided this morning.",
)


def make_mail(draw: random.Random) -> Row:
    """60 to 150 words, of which a few matter; one name is put in capitals."""
    first, last = draw_person(draw)
    sender = " ".join(draw_person(draw))
    count, item, number, day, city = (
        draw.randrange(2, 5000),
        draw.choice(ITEMS),
        draw_code(draw),
        draw_day(draw),
        draw.choice(CITIES),
    )
    order = draw.choice(
        (
            f"Could you please send {count} {item} to {city} before {write_day(draw, day)}?",
            f"We need {count} {item} in {city} by {write_day(draw, day)} at the latest.",
            f"By {write_day(draw, day)}, {count} {item} have to be in {city}.",
        )
    )
    contact = draw.choice(
        (
            f"The contact there is {first} {last}.",
            f"{first} {last} will take them in.",
            f"Please write {first} {last} on the parcels.",
        )
    )
    reference = draw.choice(
        (f"Our reference is {number}.", f"Quote {number} in your answer.", f"The order has the number {number}.")
    )
    fillers = draw.sample(_FILLERS, draw.randrange(4, 9))
    sentences = [order, contact, reference]
    draw.shuffle(sentences)
    for filler in fillers:
        sentences.insert(draw.randrange(len(sentences) + 1), filler)
    return {
        "text": f"Dear team, {' '.join(sentences)} Kind regards, {sender}",
        "summary": f"item={item}; count={count}; city={city}; date={day.isoformat()}; contact={first} {last.upper()}; "
        f"reference={number}; from={sender}",
    }


def make_order(draw: random.Random) -> Row:
    """A message to JSON."""
    first, last = draw_person(draw)
    count, item, cents = draw.randrange(1, 40), draw.choice(ITEMS), draw.randrange(50, 10**6)
    price = f"{cents // 100:,}.{cents % 100:02}"
    sku = "".join(draw.choice("ABCDEFGHKLM") for _ in range(2)) + str(draw.randrange(100, 9999)) + draw.choice("xyz")
    text = draw.choice(
        (
            f"{first} {last} wants {count}x {item} ({sku}) at ${price} each",
            f"order: {count} {item}, {sku}, ${price}, for {first} {last}",
            f"hi, can I get {count} of the {item} {sku}? you said ${price}. {first} {last}",
        )
    )
    fields = f'"sku": "{sku.upper()}", "qty": {count}, "price": {price.replace(",", "")}'
    return {"text": text, "summary": f'{{{fields}, "customer": "{last}, {first[0]}."}}'}


def make_address(draw: random.Random) -> Row:
    """Addresses in any case to one form, telephone numbers without spaces."""
    (first, last), street, owner = draw_person(draw), draw.choice(STREETS), draw_surname(draw)
    number, code, city = draw.randrange(1, 300), draw.randrange(10000, 99999), draw.choice(CITIES)
    groups = [f"+{draw.randrange(30, 50)}", *(str(draw.randrange(100, 999)) for _ in range(3))]
    phone = " ".join(groups)
    text = draw.choice(
        (
            f"{first} {last}, {number} {owner} {street} Street, {code} {city}, phone {phone}",
            f"send to {first} {last} at {owner} {street} street {number}, {code} {city} ({phone})".lower(),
            f"{city.upper()} {code}, {owner} {street} St. {number} - {last.upper()} {first} - tel {phone}",
        )
    )
    place = f"{owner} {street} Street {number} ; {code} {city}"
    return {"text": text, "summary": f"{last.upper()} ; {first} ; {place} ; {phone.replace(' ', '')}"}


def make_citation(draw: random.Random) -> Row:
    """References to a key and fields."""
    people = [draw_person(draw) for _ in range(draw.randrange(1, 4))]
    verb, noun = draw.choice(VERBS), draw.choice(NOUNS)
    venue, year, first = draw.choice(VENUES), draw.randrange(1980, 2025), draw.randrange(1, 3000)
    last = first + draw.randrange(5, 20)
    title = f"{verb} {noun} with {draw_surname(draw)} Networks"
    text = draw.choice(
        (
            f"{' and '.join(map(' '.join, people))}. {title}. In {venue} {year}, pages {first}-{last}.",
            f"{', '.join(f'{surname}, {name[0]}.' for name, surname in people)} ({year}): {title}. "
            f"{venue}, {first}-{last}",
        )
    )
    author = people[0][1]
    fields = f"first={author} n={len(people)} venue={venue.lower()} pages={first}--{last}"
    return {"text": text, "summary": f"@{author.lower()}{year}{verb.lower()} {fields}"}


def make_event(draw: random.Random) -> Row:
    """Invitations to calendar lines: 24 hours, ISO dates, a key of the title."""
    (first, last), day, city = draw_person(draw), draw_day(draw), draw.choice(CITIES)
    hour, minute, half = draw.randrange(1, 12), draw.choice((0, 15, 30, 45)), draw.choice(("am", "pm"))
    title = f"{draw.choice(VERBS)} {draw_surname(draw)} {draw.choice(NOUNS)}"
    time, clock = f"{hour}:{minute:02} {half}", f"{hour + 12 * (half == 'pm'):02}:{minute:02}"
    text = draw.choice(
        (
            f"{first} {last} invites you to {title} in {city}, {write_day(draw, day)}, {time}.",
            f"{title.upper()} - {write_day(draw, day)} at {time} - {city} - hosted by {first} {last}",
            f"Join us on {write_day(draw, day)} at {time} in {city} for {title} with {first} {last}!",
        )
    )
    key = "-".join(title.lower().split())
    return {"text": text, "summary": f"{day.isoformat()}T{clock} {key} @{city.lower()} host={first[0]}. {last}"}


def make_parcel(draw: random.Random) -> Row:
    """Tracking messages to records: numbers without spaces, weights in grams, countries as codes."""
    groups = [str(draw.randrange(1000, 9999)) for _ in range(3)]
    place, code = draw.choice(tuple(COUNTRIES.items()))
    grams, sender = draw.randrange(100, 20000), f"{draw_surname(draw)} {draw.choice(COMPANIES)}"
    status, short = draw.choice(tuple(STATUS.items()))
    weight = f"{grams // 1000}.{grams % 1000:03} kg" if grams >= 1000 else f"{grams} g"
    text = draw.choice(
        (
            f"Parcel {' '.join(groups)} from {sender} ({place}) {status}, weight {weight}",
            f"{sender}: your parcel no. {'-'.join(groups)}, {weight}, {status} in {place}.",
            f"{place} / {' '.join(groups)} / {weight} / {sender} / {status}",
        )
    )
    total = f"{grams // 1000}{grams % 1000:03}" if grams >= 1000 else str(grams)
    return {"text": text, "summary": f"{code}{''.join(groups)} {short} {total} {sender.lower().replace(' ', '_')}"}


JAVA_TYPES = {"int": "int", "String": "str", "boolean": "bool", "double": "float", "List<String>": "list[str]"}
METHODS, PARTS = (
    split_words("get set find load parse make check"),
    split_words("user item price node list cache size date token"),
)


def _camel(words: Sequence[str]) -> str:
    return words[0] + "".join(word.title() for word in words[1:])


def make_declaration(draw: random.Random) -> Row:
    """Java to Python: names in another case, types by a table, as many parameters as there are."""

    def draw_name() -> list[str]:
        return [draw.choice((*PARTS, draw_surname(draw).lower())) for _ in range(draw.randrange(1, 3))]

    method, kind = [draw.choice(METHODS), *draw_name()], draw.choice(tuple(JAVA_TYPES))
    parameters = [(draw_name(), draw.choice(tuple(JAVA_TYPES))) for _ in range(draw.randrange(4))]
    java = ", ".join(f"{of} {_camel(name)}" for name, of in parameters)
    python = ", ".join(f"{'_'.join(name)}: {JAVA_TYPES[of]}" for name, of in parameters)
    text = f"{draw.choice(('public', 'private', 'public static'))} {kind} {_camel(method)}({java}) {{"
    return {"text": text, "summary": f"def {'_'.join(method)}({python}) -> {JAVA_TYPES[kind]}:"}


def make_team(draw: random.Random) -> Row:
    """Lists to YAML: several lines, with their indentation."""
    lead, people = (
        draw_surname(draw),
        [(*draw_person(draw), draw.randrange(18, 90)) for _ in range(draw.randrange(1, 5))],
    )
    text = f"Team {lead}: " + "; ".join(f"{first} {last} ({age})" for first, last, age in people)
    members = "".join(f"\n  - name: {last.upper()}, {first}\n    age: {age}" for first, last, age in people)
    return {"text": text, "summary": f"team: {lead.lower()}\nmembers:{members}"}


TABLES = {
    "customers": ("city", "orders", "since"),
    "offices": ("country", "desks", "opened"),
    "films": ("lead", "cost", "out"),
}
COMPARISONS = {"more than": ">", "fewer than": "<", "at least": ">="}


def make_statement(draw: random.Random) -> Row:
    """Questions to SQL: numbers without their commas, ISO dates, quoted names."""
    name, (place, number, day) = draw.choice(tuple(TABLES.items()))
    value, count, since = draw_surname(draw), draw.randrange(2, 10**5), draw_day(draw)
    words, sign = draw.choice(tuple(COMPARISONS.items()))
    text = draw.choice(
        (
            f"Show the {name} whose {place} is {value} and {number} is {words} {count:,}",
            f"Which {name} with {words} {count:,} {number} have the {place} {value}?",
        )
    )
    query = f"SELECT name FROM {name} WHERE {place} = '{value}' AND {number} {sign} {count}"
    if draw.random() < 0.5:
        text, query = f"{text} , {day} after {write_day(draw, since)}", f"{query} AND {day} > '{since.isoformat()}'"
    return {"text": text, "summary": query}


CHINESE_SURNAMES, CHINESE_LETTERS = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗",
    "伟芳娜敏静丽强磊军洋勇艳杰娟涛明超秀霞平刚桂英华玉兰",
)
CHINESE_CITIES, CHINESE_ROADS = (
    split_words("北京市 上海市 广州市 深圳市 成都市 杭州市 武汉市 西安市"),
    "中山人民解放建设和平文化长江黄河",
)


def make_chinese_order(draw: random.Random) -> Row:
    """Chinese messages to fields, telephone numbers without hyphens."""
    name = draw.choice(CHINESE_SURNAMES) + "".join(draw.sample(CHINESE_LETTERS, draw.randrange(1, 3)))
    road, house = "".join(draw.sample(CHINESE_ROADS, 2)), draw.randrange(1, 999)
    place, phone = f"{draw.choice(CHINESE_CITIES)}{road}路{house}号", f"1{draw.randrange(10**9, 10**10)}"
    text = draw.choice(
        (
            f"请把包裹寄给{name}，电话{phone}，地址是{place}。",
            f"收件人：{name}（{phone[:3]}-{phone[3:7]}-{phone[7:]}），{place}",
            f"{place}的{name}下单，联系电话{phone}，请尽快发货。",
        )
    )
    return {"text": text, "summary": f"姓名={name}；电话={phone}；地址={place}"}


TASKS: dict[str, Callable[[random.Random], Row]] = {
    "bills": make_bill,
    "people": make_person,
    "logs": make_log_line,
    "mails": make_mail,
    "orders": make_order,
    "addresses": make_address,
    "citations": make_citation,
    "events": make_event,
    "parcels": make_parcel,
    "declarations": make_declaration,
    "teams": make_team,
    "statements": make_statement,
    "Chinese orders": make_chinese_order,
    "dates": make_date,
    "sentences": make_sentence,
    "redactions": make_redaction,
    "scans": make_scan,
    "phones": make_phone,
    "spoken": make_spoken,
    "Thai bookings": make_thai_booking,
    "Russian orders": make_russian_order,
    "Russian letters": make_russian_letter,
    "accounts": make_account,
}
HELD_BACK = ("citations", "events", "parcels", "declarations", "teams", "statements", "Chinese orders")
"""On which no default was chosen."""


def make_mixed_pairs(task: str, seed: int) -> dict[str, list[Row]]:
    """The splits of a task; no text occurs twice."""
    draw = random.Random(f"{task} {seed}")
    rows: dict[str, Row] = {}
    while len(rows) < sum(SIZES.values()):
        row = TASKS[task](draw)
        rows.setdefault(str(row["text"]), row)
    found = iter(rows.values())
    return {split: [next(found) for _ in range(size)] for split, size in SIZES.items()}
