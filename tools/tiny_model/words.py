"""Word lists, random made-up words and the small noise that real users add."""

import random
import string

FIRST = """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Karen Liam Maria Noah Olivia Paul Quinn Rosa Sam
Tina Umar Vera Will Xenia Yusuf Zoe Alice Bob Carol Daniel Elena Frank Gina Hassan Ivan Julia Kofi Lena Marco Nadia
Omar Priya Rafael Sofia Tom Ursula Victor Wanda Ximena Yara Zach Aisha Bruno Chen Diego Esther Fatima Georg Hana
Ingrid Jonas Keiko Lucas Mina Nils Oscar Petra Ravi Sara Theo Amir Bella Carlos Dora Erik Fiona Greta Hugo Ines
José Zoë François Łukasz Søren Renée Jürgen Björn Priya Xochitl Quentin James Kate Leo Mia Nina Otto Peter Rita Simon Tara Uma Vito Wei John Mary Robert Linda Michael Susan""".split()
LAST = """Smith Jones Brown Miller Garcia Kim Lee Chen Novak Rossi Weber Fischer Silva Santos Patel Singh Khan Ali
Tanaka Sato Nguyen Tran Ivanov Petrov Larsen Hansen Berg Lind Moreau Dubois Martin Bernard Lopez Gomez Diaz Cruz
Schmidt Keller Braun Vogel Hart Ward Cole Reed Stone Fox Young King Hill Green Baker Cooper Turner Parker Evans
Murphy Walsh Byrne Costa Ferrari Conti Marino Popescu Horvat Kovac Nagy Toth Virtanen Korhonen Adeyemi Okafor Mensah
Haddad Nasser Cohen Levy Park Choi Yamada Mori Wilson Taylor Thomas Moore White Clark Lewis Müller Núñez García Öztürk O'Brien O'Neill Smith-Jones Quill Raghunathan Fernández""".split()
CITIES = """Paris London Berlin Madrid Rome Vienna Prague Warsaw Lisbon Dublin Oslo Stockholm Helsinki Copenhagen
Amsterdam Brussels Athens Budapest Zurich Geneva Munich Hamburg Milan Naples Porto Seville Lyon Nice Krakow Riga
Tallinn Vilnius Kyiv Sofia Bucharest Belgrade Zagreb Istanbul Ankara Cairo Lagos Nairobi Accra Tunis Casablanca
Tokyo Osaka Kyoto Seoul Beijing Shanghai Bangkok Hanoi Manila Jakarta Singapore Mumbai Delhi Chennai Karachi Dubai
Doha Tehran Baghdad Sydney Melbourne Perth Auckland Toronto Montreal Vancouver Boston Chicago Denver Seattle Dallas
Houston Austin Miami Atlanta Phoenix Portland Lima Bogota Santiago Caracas Quito Montevideo Havana Leeds Bristol
Glasgow Edinburgh Cardiff Belfast Turin Venice Florence Leipzig Dresden Bonn Basel Bern Ghent Bruges Zürich München Köln Málaga Reykjavik Québec Coimbatore Qingdao""".split()
CITIES += ["New York", "Los Angeles", "San Francisco", "Hong Kong", "Cape Town", "Mexico City", "Buenos Aires",
           "Rio de Janeiro", "Sao Paulo", "Tel Aviv", "New Delhi", "Kuala Lumpur", "San Diego", "Las Vegas"]
ZONES = {
    "Paris": "Europe/Paris", "London": "Europe/London", "Berlin": "Europe/Berlin", "Madrid": "Europe/Madrid",
    "Rome": "Europe/Rome", "Vienna": "Europe/Vienna", "Prague": "Europe/Prague", "Warsaw": "Europe/Warsaw",
    "Lisbon": "Europe/Lisbon", "Dublin": "Europe/Dublin", "Oslo": "Europe/Oslo", "Stockholm": "Europe/Stockholm",
    "Helsinki": "Europe/Helsinki", "Athens": "Europe/Athens", "Budapest": "Europe/Budapest",
    "Zurich": "Europe/Zurich", "Amsterdam": "Europe/Amsterdam", "Brussels": "Europe/Brussels",
    "Istanbul": "Europe/Istanbul", "Kyiv": "Europe/Kyiv", "Cairo": "Africa/Cairo", "Lagos": "Africa/Lagos",
    "Nairobi": "Africa/Nairobi", "Tokyo": "Asia/Tokyo", "Seoul": "Asia/Seoul", "Shanghai": "Asia/Shanghai",
    "Singapore": "Asia/Singapore", "Bangkok": "Asia/Bangkok", "Manila": "Asia/Manila", "Jakarta": "Asia/Jakarta",
    "Dubai": "Asia/Dubai", "Karachi": "Asia/Karachi", "Hong Kong": "Asia/Hong_Kong", "Sydney": "Australia/Sydney",
    "Melbourne": "Australia/Melbourne", "Perth": "Australia/Perth", "Auckland": "Pacific/Auckland",
    "Toronto": "America/Toronto", "Vancouver": "America/Vancouver", "New York": "America/New_York",
    "Chicago": "America/Chicago", "Denver": "America/Denver", "Los Angeles": "America/Los_Angeles",
    "Lima": "America/Lima", "Bogota": "America/Bogota", "Santiago": "America/Santiago",
}
COMMON = """the be to of and a in that have it for not on with he as you do at this but his by from they we say her she or an will my
one all would there their what so up out if about who get which go me when make can like time no just him know take people into
year your good some could them see other than then now look only come its over think also back after use two how our work first
well way even new want because any these give day most us rain Spain stays mainly plain once upon king queen castle little big
house dog cat bird fish horse cow sheep boy girl man woman child mother father brother sister friend school teacher student book
letter word page story song dance game ball team city town village street road bridge river lake sea ocean mountain hill forest
tree leaf flower grass garden field farm bread milk cheese egg meat fruit apple orange water tea coffee sugar salt morning evening
night week month summer winter spring autumn snow wind storm sun moon star sky cloud fire light dark red blue green yellow black
white old young long short fast slow hot cold happy sad loud quiet open close start stop run walk jump sit stand read write sing
play eat drink sleep wake talk listen laugh cry buy sell pay cost money coin gold silver iron wood stone glass paper plastic
better faster never always often maybe today tomorrow yesterday here everything nothing something someone anyone every each both
few many much more less very really quite almost again still already yet soon later before during under between through against
computer program server network memory model token graph kernel stream engine machine driver system software hardware data file
hello goodbye please thanks sorry yes okay great wonderful beautiful strange simple difficult important possible ready""".split()
JOBS = """teacher nurse engineer baker pilot lawyer farmer painter driver chef dentist plumber writer editor scientist
carpenter musician designer librarian mechanic accountant architect gardener translator waiter programmer""".split()
ITEMS = """apples pears books pens chairs lamps tickets stamps cups plates shirts socks shoes hats bags boxes bottles
eggs oranges lemons melons carrots onions tomatoes cookies cakes coins cards marbles candles flowers roses keys
batteries cables screws nails bricks tiles towels pillows blankets toys balls kites bikes phones laptops mugs
spoons forks knives notebooks pencils markers posters stickers""".split()
COLORS = "red blue green black white yellow orange purple grey brown pink silver".split()
MONTHS = """January February March April May June July August September October November December""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pr r s sh st t tr v w z q qu x y j ph th sch wh cl gl pl cr sk sn sw".split()
VOWELS = "a e i o u ai ea io ou y ee oo au ie ü é".split()
CODAS = ["", "", "", "n", "r", "l", "s", "t", "k", "m", "nd", "rt", "x", "th", "ck", "sh", "ng", "z", "ll", "h", "g", "b"]


def wild(rng: random.Random) -> str:
    """Letters in no order at all: copying must not depend on what words look like."""
    letters = string.ascii_lowercase + ("éüöäáñçøłßæ" if rng.random() < 0.15 else "")
    return "".join(rng.choice(letters) for _ in range(rng.randint(2, 9)))


def made_up(rng: random.Random, syllables: int | None = None) -> str:
    if rng.random() < 0.12:
        return wild(rng)
    count = syllables or rng.choice([1, 2, 2, 3])
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(count))


def first_name(rng: random.Random) -> str:
    return rng.choice(FIRST) if rng.random() < 0.6 else made_up(rng).capitalize()


def last_name(rng: random.Random) -> str:
    return rng.choice(LAST) if rng.random() < 0.5 else made_up(rng).capitalize()


def full_name(rng: random.Random) -> str:
    return f"{first_name(rng)} {last_name(rng)}"


def city(rng: random.Random, made_up_share: float = 0.3) -> str:
    return made_up(rng).capitalize() if rng.random() < made_up_share else rng.choice(CITIES)


def email(rng: random.Random) -> str:
    local = [rng.choice(FIRST).lower() if rng.random() < 0.5 else made_up(rng) for _ in range(rng.choice([1, 1, 2]))]
    text = rng.choice([".", "_", ""]).join(local) + (str(rng.randint(1, 99)) if rng.random() < 0.25 else "")
    host = rng.choice(["example", "mail", "work", "post", made_up(rng), f"{made_up(rng, 1)}-{made_up(rng, 1)}"])
    return f"{text}@{host}.{rng.choice(['com', 'org', 'net', 'de', 'io', 'co', 'co.uk', 'edu', 'fr', 'eu'])}"


def date(rng: random.Random) -> str:
    year, month, day = rng.randint(1990, 2032), rng.randint(1, 12), rng.randint(1, 28)
    forms = [f"{year}-{month:02d}-{day:02d}", f"{day} {MONTHS[month - 1]} {year}",
             f"{MONTHS[month - 1]} {day}, {year}", f"{MONTHS[month - 1]} {day}", rng.choice(DAYS)]
    return rng.choices(forms, [4, 3, 2, 2, 1])[0]


def iso_date(rng: random.Random) -> str:
    return f"{rng.randint(2024, 2032)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def clock_time(rng: random.Random) -> str:
    return f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"


def join_list(parts: list[str], word: str = "and") -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" {word} " + parts[-1]


def typo(rng: random.Random, text: str) -> str:
    """Swaps, doubles or drops one letter of a word; digits are never touched."""
    places = [i for i in range(len(text) - 1) if text[i].isalpha() and text[i + 1].isalpha()]
    if not places:
        return text
    i = rng.choice(places)
    return rng.choice([text[:i] + text[i + 1] + text[i] + text[i + 2:], text[:i] + text[i] + text[i:],
                       text[:i] + text[i + 1:]])


GREETINGS = ["Hi, ", "Hello, ", "Hey, ", "Hi! ", "Hello! ", "Good morning. ", "OK, ", "Please: ", "Hey rose, ", "So, "]


def casual(rng: random.Random, text: str, typos: bool = True, lower: bool = True) -> str:
    """What people do to a clean question."""
    if rng.random() < 0.08:
        text = rng.choice(GREETINGS) + text[0].lower() + text[1:] if lower else rng.choice(GREETINGS) + text
    if lower and rng.random() < 0.15:
        text = text.lower()
    if text.endswith((".", "?")) and rng.random() < 0.15:
        text = text[:-1]
    if rng.random() < 0.05:
        text = text.rstrip("?.") + rng.choice([" please", ", please", ", thanks", "?", "!", " please?"])
    if typos and rng.random() < 0.05:
        text = typo(rng, text)
    return text
