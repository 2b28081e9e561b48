"""Generated tasks whose outputs write words and numbers of their sources in another way: dates of six languages,
scans, telephone numbers, numbers in words, fields of a script without spaces, inflected names, and accounts."""

from __future__ import annotations

import random
from datetime import timedelta

from .draws import CITIES, FORMS, ITEMS, MONTHS, draw_day, draw_person, draw_surname, split_words
from .rows import Row

# Of other languages; most occur fewer than five times in the training pairs, as words or cut to three letters.
FOREIGN_MONTHS = (
    split_words("Januar Februar März April Mai Juni Juli August September Oktober November Dezember"),
    split_words("janvier février mars avril mai juin juillet août septembre octobre novembre décembre"),
    split_words("enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"),
    split_words("gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre"),
    split_words("stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia"),
    split_words("januari februari maart april mei juni juli augustus september oktober november december"),
)


def make_date(draw: random.Random) -> Row:
    """Dates in six languages to ISO dates."""
    day, months = draw_day(draw) - timedelta(days=draw.randrange(20000)), draw.choice(FOREIGN_MONTHS)
    month = months[day.month - 1]
    month = draw.choice((month, month, month[:3] if len(month) > 4 else month))
    return {
        "text": draw.choice((f"{day.day} {month} {day.year}", f"{day.day}. {month} {day.year}")),
        "summary": str(day),
    }


def make_sentence(draw: random.Random) -> Row:
    """Rows of a table to sentences; numbers get commas."""
    (first, last), day, city = draw_person(draw), draw_day(draw), draw.choice(CITIES)
    item, count, price = draw.choice(ITEMS), draw.randrange(2, 60), draw.randrange(1000, 10**6)
    written = f"{MONTHS[day.month - 1]} {day.day}, {day.year}"
    return {
        "text": f"name: {first} {last} | date: {day.isoformat()} | item: {count} {item} | city: {city} | sum: {price}",
        "summary": f"On {written}, {first} {last} from {city} bought {count} {item} for ${price:,}.",
    }


COMMON_WORDS = split_words(
    "after always before blue call change cold early every few find first garden give green house keep large late "
    "learn letter light little look make many meet month move never next night often open other paper people plan "
    "play quiet read red river road run second send short side small some soon stand start still story street table "
    "talk think time train tree try under until walk wall warm watch week white wind with word work write year "
    "young"
)


def make_redaction(draw: random.Random) -> Row:
    """Names, addresses, telephone and account numbers to their kinds; all other words are copied."""
    text: list[str] = []
    summary: list[str] = []
    for _ in range(draw.randrange(2, 5)):
        words = draw.choices(COMMON_WORDS, k=draw.randrange(4, 9))
        (first, last), place = draw_person(draw), draw.randrange(len(words) + 1)
        digits = "".join(str(draw.randrange(10)) for _ in range(18))
        value, kind = draw.choice(
            (
                (f"{first} {last}", "[NAME]"),
                (f"{first.lower()}{draw.randrange(100)}@{last.lower()}.com", "[EMAIL]"),
                (f"{digits[:3]}-{digits[3:6]}-{digits[6:10]}", "[PHONE]"),
                (f"{draw.choice(('GB', 'DE', 'FR'))}{digits}", "[IBAN]"),
            )
        )
        for sentence, word in ((text, value), (summary, kind)):
            sentence.append(" ".join([*words[:place], word, *words[place:]]) + ".")
    return {"text": " ".join(text), "summary": " ".join(summary)}


DIGITS_MISREAD = str.maketrans("0158", "OlSB")


def make_scan(draw: random.Random) -> Row:
    """Scanned lines, in which some digits were read as letters, to fields."""
    (first, last), firm = draw_person(draw), f"{draw_surname(draw)} {draw.choice(FORMS)}"
    number, total = f"{draw.randrange(10**8):08}", f"{draw.randrange(10, 10**4)}.{draw.randrange(100):02}"

    def read(text: str) -> str:
        return "".join(digit.translate(DIGITS_MISREAD) if draw.random() < 0.4 else digit for digit in text)

    return {
        "text": f"lNVOlCE No {read(number)} to {first} {last}, {firm} T0TAL {read(total)} EUR",
        "summary": f"{number};{first} {last};{firm};{total}",
    }


DIALLING_CODES = {"Austria": "43", "Germany": "49", "France": "33", "Norway": "47", "Poland": "48"}


def make_phone(draw: random.Random) -> Row:
    """Telephone numbers as people write them to international ones, which lack the leading zero."""
    (first, last), (country, code) = draw_person(draw), draw.choice([*DIALLING_CODES.items()])
    digits = f"{draw.randrange(10**8, 10**9)}"
    forms = (
        f"0{digits[:3]} {digits[3:6]} {digits[6:]}",
        f"(0{digits[:2]}) {digits[2:5]}-{digits[5:]}",
        f"0{digits[:4]}/{digits[4:]}",
        f"+{code} {digits[:3]} {digits[3:5]} {digits[5:7]} {digits[7:]}",
    )
    return {"text": f"{first} {last}, {country}: {draw.choice(forms)}", "summary": f"{first} {last} +{code}{digits}"}


UNITS = split_words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
TENS = split_words("twenty thirty forty fifty sixty seventy eighty ninety")
GOODS = split_words("rice oats sugar gravel sand wheat salt coffee")


def spell_number(number: int) -> str:
    """The words of a number below a million."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        return TENS[number // 10 - 2] + (f"-{UNITS[number % 10]}" if number % 10 else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    rest = f" {spell_number(number % size)}" if number % size else ""
    return f"{spell_number(number // size)} {name}{rest}"


def make_spoken(draw: random.Random) -> Row:
    """Sentences as they are read aloud: numbers, prices and telephone numbers in words."""
    (first, last), city, goods = draw_person(draw), draw.choice(CITIES), draw.choice(GOODS)
    weight, price, cents = draw.randrange(2, 1000), draw.randrange(2, 100_000), draw.randrange(21, 100)
    digits = f"{draw.randrange(10**6):06}"
    spoken = " ".join(UNITS[int(digit)] for digit in digits)
    forms = (
        (f"{first} {last} sold {weight} kg of {goods} for ${price:,}.", f"{first} {last} sold {spell_number(weight)} "
         f"kilograms of {goods} for {spell_number(price)} dollars."),
        (f"A kilo of {goods} costs ${weight}.{cents} in {city}.", f"A kilo of {goods} costs {spell_number(weight)} "
         f"dollars {spell_number(cents)} cents in {city}."),
        (f"Call Mr. {last} at {digits}.", f"Call Mister {last} at {spoken}."),
        (f"From {city} it is {price:,} m to Mr. {last}.", f"From {city} it is {spell_number(price)} meters to Mister "
         f"{last}."),
    )  # fmt: skip
    chosen = draw.sample(forms, 2)
    return {"text": " ".join(text for text, _ in chosen), "summary": " ".join(words for _, words in chosen)}


THAI_ONSETS, THAI_RIMES = split_words("ก ข ค จ ช ด ต ท น บ ป พ ม ร ล ว ส ห"), split_words("า าน ัน ิน ุน อง ิต ัก ัย ี")
THAI_MONTHS = split_words("มกราคม กุมภาพันธ์ มีนาคม เมษายน พฤษภาคม มิถุนายน กรกฎาคม สิงหาคม กันยายน ตุลาคม พฤศจิกายน ธันวาคม")
THAI_PLACES = split_words("ร้าน ห้องประชุม คลินิก โรงแรม")


def make_thai_booking(draw: random.Random) -> Row:
    """Thai messages, which have hardly any spaces, to fields."""

    def draw_name() -> str:
        return "".join(draw.choice(THAI_ONSETS) + draw.choice(THAI_RIMES) for _ in range(draw.randrange(2, 5)))

    first, last, place = draw_name(), draw_name(), draw.choice(THAI_PLACES) + draw_name()
    day = f"{draw.randrange(1, 29)} {draw.choice(THAI_MONTHS)} {draw.randrange(2560, 2575)}"
    hour, minute, seats = draw.randrange(8, 22), draw.choice(("00", "15", "30", "45")), draw.randrange(2, 40)
    when = f"วันที่{day}เวลา{hour}.{minute}น."
    text = draw.choice(
        (
            f"คุณ{first} {last}ขอจอง{place}{when}สำหรับ{seats}คน",
            f"สวัสดีค่ะขอจอง{place}ในนามคุณ{first} {last}{seats}ที่นั่ง{when}ขอบคุณค่ะ",
            f"{when}คุณ{first} {last}จะมาที่{place}พร้อมเพื่อนรวม{seats}คน",
        )
    )
    fields = {"name": f"{first} {last}", "place": place, "date": day, "time": f"{hour}:{minute}", "seats": seats}
    return {"text": text, "summary": " | ".join(f"{name} = {value}" for name, value in fields.items())}


# First names as they are and in the genitive, then those of women.
RUSSIAN_NAMES = (
    {"Иван": "Ивана", "Олег": "Олега", "Антон": "Антона", "Борис": "Бориса", "Максим": "Максима", "Роман": "Романа"},
    {"Анна": "Анны", "Ольга": "Ольги", "Мария": "Марии", "Ирина": "Ирины", "Елена": "Елены", "Дарья": "Дарьи"},
)
RUSSIAN_ENDINGS = (("", "а"), ("а", "ой"))  # of surnames in -ов, as they are and in the genitive
RUSSIAN_ONSETS, RUSSIAN_RIMES = (
    split_words("Б В Г Д З К Л М Н П Р С Т Ф"),
    split_words("ал ар ем ен ил ир ом он ут ян"),
)
RUSSIAN_ITEMS = split_words("стол лампа кресло насос принтер бутылка шина фильтр")
RUSSIAN_CITIES = split_words("Омск Пермь Тула Казань Самара Псков Томск Уфа")


def make_russian_order(draw: random.Random) -> Row:
    """Russian orders to fields; half of the names are in the genitive, all other words are copied."""
    gender = draw.randrange(2)
    first, inflected = draw.choice([*RUSSIAN_NAMES[gender].items()])
    stem = draw.choice(RUSSIAN_ONSETS) + "".join(draw.choices(RUSSIAN_RIMES, k=2)) + "ов"
    ending, genitive = RUSSIAN_ENDINGS[gender]
    name = f"{first} {stem}{ending}"
    who = draw.choice((f"клиент {name}", f"для {inflected} {stem}{genitive}"))
    number, digits, day = draw.randrange(1000, 10**5), f"{draw.randrange(10**7):07}", draw_day(draw)
    item, count, price = draw.choice(RUSSIAN_ITEMS), draw.randrange(2, 90), draw.randrange(100, 10**5)
    city = draw.choice(RUSSIAN_CITIES)
    text = draw.choice(
        (
            f"заказ {number} от {day}: {item}, {count} шт. по {price} руб., {who}, {city}, тел. {digits}",
            f"{city}, тел. {digits}, {who}: {count} шт., {item}, цена {price} руб., заказ {number}, {day}",
        )
    )
    fields = (
        f"заказ = {number} | дата = {day} | клиент = {name} | товар = {item} | число = {count} | цена = {price} | "
        f"город = {city} | телефон = {digits}"
    )
    return {"text": text, "summary": fields}


# Stems and endings of men, then of women, in four cases: as they are, genitive, dative, instrumental.
RUSSIAN_STEMS = (split_words("Иван Олег Антон Максим Роман Степан"), split_words("Анн Ирин Елен Нин Полин Светлан"))
RUSSIAN_CASES = (("", "а", "у", "ом"), ("а", "ы", "е", "ой"))
RUSSIAN_CASES_OF_SURNAMES = (("", "а", "у", "ым"), ("а", "ой", "ой", "ой"))
RUSSIAN_SENTENCES = (
    "Здравствуйте, коллеги!",
    "Спасибо за быстрый ответ на прошлой неделе.",
    "На складе идёт ремонт, поэтому часть товара лежит во дворе.",
    "Из-за снега машины приходят позже обычного.",
    "Просим проверить данные и сообщить нам об ошибках.",
    "Договор на следующий год уже лежит у директора.",
    "Бухгалтерия закрывает месяц и просит не задерживать документы.",
    "Если что-то непонятно, пишите в общий чат.",
    "Копия этого письма отправлена в отдел продаж.",
    "Напоминаем, что в пятницу офис работает до обеда.",
    "С уважением, отдел доставки.",
)


def make_russian_letter(draw: random.Random) -> Row:
    """Russian letters of about 75 words to fields; three quarters of the names are inflected."""
    gender, case = draw.randrange(2), draw.randrange(4)
    first, last = draw.choice(RUSSIAN_STEMS[gender]), draw.choice(RUSSIAN_ONSETS)
    last += "".join(draw.choices(RUSSIAN_RIMES, k=2)) + "ов"
    name, inflected = (
        f"{first}{RUSSIAN_CASES[gender][each]} {last}{RUSSIAN_CASES_OF_SURNAMES[gender][each]}" for each in (0, case)
    )
    ways = ("— клиент",), ("получен от", "оформлен для"), ("передан", "нужен"), ("согласован с",)
    who = f"{draw.choice(ways[case])} {inflected}"
    number, digits, day = draw.randrange(1000, 10**5), f"{draw.randrange(10**7):07}", draw_day(draw)
    price = draw.randrange(100, 10**5)
    sentences = [
        *(f"Заказ {number} {who}.", f"Оплата {price} руб. поступила {day}.", f"Телефон для связи {digits}."),
        *draw.sample(RUSSIAN_SENTENCES, draw.randrange(7, 11)),
    ]
    draw.shuffle(sentences)
    return {
        "text": " ".join(sentences),
        "summary": f"заказ = {number} | дата = {day} | клиент = {name} | сумма = {price} | телефон = {digits}",
    }


UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
GERMAN_NAMES = split_words("Jürgen Käthe Björn Sören Günther Ömer Anna Viktor Greta Hugo Petra Walter Nora Frank Ulla")
COMPANY_WORDS = split_words("Dental Boat Union Garden Energy Harbor Music Rail Timber Optics Water Paper Silver North")
ACCOUNT_SENTENCES = (
    "The new laptop has arrived and waits at the desk on the second floor.",
    "Please set everything up before the weekend, because Monday is a holiday.",
    "A parking permit is not needed.",
    "Mr Oster from the help desk knows the details and is in the office until noon.",
    "Our last request from April was answered within a day, thank you again.",
    "The contract is signed and lies with the legal team.",
    "If anything is missing, write to Claire in Human Resources.",
    "The old badge can be thrown away.",
)


def make_account(draw: random.Random) -> Row:
    """Mails of about 60 words to accounts: initials, an acronym, a user name of six letters, no umlauts."""
    first, surname = draw.choice(GERMAN_NAMES), draw_surname(draw)
    for plain, umlaut in (("o", "ö"), ("u", "ü"), ("a", "ä"), ("ss", "ß")):
        surname = surname.replace(plain, umlaut, 1) if draw.random() < 0.3 else surname
    company = draw.sample(COMPANY_WORDS, draw.randrange(2, 5))
    day, name = draw_day(draw), f"{first} {surname}"
    who = draw.choice((f"{name} starts", f"Our colleague {name} begins", f"We expect {name}"))
    sentences = [
        f"{who} on {day.day} {MONTHS[day.month - 1]} {day.year}.",
        draw.choice(("The employer is {}.", "Bill it to {}.", "All costs go to {} as before.")).format(
            " ".join(company)
        ),
        *draw.sample(ACCOUNT_SENTENCES, 4),
    ]
    draw.shuffle(sentences)
    first, surname = first.translate(UMLAUTS), surname.translate(UMLAUTS)
    fields = (
        f"name = {surname.upper()}, {first[0]}. | user = {first[0].lower()}{surname[:5].lower()} | "
        f"mail = {first.lower()}.{surname.lower()} | org = {''.join(word[0] for word in company)} | start = {day}"
    )
    return {"text": " ".join(sentences), "summary": fields}
