"""States of the USA, for parameters that want «Austin, TX» where people write «Austin, Texas», or «Austin»."""

_STATES = """
alabama AL, alaska AK, arizona AZ, arkansas AR, california CA, colorado CO, connecticut CT, delaware DE, florida FL,
georgia GA, hawaii HI, idaho ID, illinois IL, indiana IN, iowa IA, kansas KS, kentucky KY, louisiana LA, maine ME,
maryland MD, massachusetts MA, michigan MI, minnesota MN, mississippi MS, missouri MO, montana MT, nebraska NE, nevada
NV, new hampshire NH, new jersey NJ, new mexico NM, new york NY, north carolina NC, north dakota ND, ohio OH, oklahoma
OK, oregon OR, pennsylvania PA, rhode island RI, south carolina SC, south dakota SD, tennessee TN, texas TX, utah UT,
vermont VT, virginia VA, washington WA, west virginia WV, wisconsin WI, wyoming WY
"""
_CODES = dict(pair.strip().rsplit(" ", 1) for pair in _STATES.replace("\n", " ").split(","))

# About the hundred largest by population; a smaller town is left as it was said: nobody can know which one is meant.
_LARGE = """
AZ: phoenix, tucson, mesa, chandler, scottsdale, glendale; CA: los angeles, san diego, san jose, san francisco,
fresno, sacramento, long beach, oakland, bakersfield, anaheim, riverside, stockton, irvine, chula vista, fremont, san
bernardino; CO: denver, colorado springs, aurora; DC: washington; FL: jacksonville, miami, tampa, orlando, st.
petersburg, hialeah; GA: atlanta; HI: honolulu; IL: chicago; IN: indianapolis, fort wayne; KS: wichita; KY:
louisville, lexington; LA: new orleans, baton rouge; MA: boston; MD: baltimore; MI: detroit; MN: minneapolis, st.
paul, saint paul; MO: kansas city, st. louis, saint louis; NC: charlotte, raleigh, greensboro, durham, winston-salem;
NE: omaha, lincoln; NJ: newark, jersey city; NM: albuquerque; NV: las vegas, henderson, reno; NY: new york, new york
city, nyc, buffalo; OH: columbus, cleveland, cincinnati, toledo; OK: oklahoma city, tulsa; OR: portland; PA:
philadelphia, pittsburgh; TN: nashville, memphis; TX: houston, san antonio, dallas, austin, fort worth, el paso,
arlington, corpus christi, plano, lubbock, laredo; VA: virginia beach, chesapeake, norfolk, richmond; WA: seattle,
spokane; WI: milwaukee, madison
"""
_CITIES = {
    city: state
    for group in " ".join(_LARGE.split()).split("; ")
    for state, _, cities in [group.partition(": ")]
    for city in cities.split(", ")
}


def in_state_code(place: str) -> str:
    """`Austin, Texas` and `Austin` as `Austin, TX`; a place of which the state is not known as it is."""
    city, comma, state = place.rpartition(", ")
    if comma:
        return f"{city}, {_CODES.get(state.lower(), state)}"
    found = _CITIES.get(place.lower())
    if found is None:
        return place
    name = place.removesuffix(" City") if place == "New York City" else place
    return f"{name if name[0].isupper() else name.title()}, {found}"
