"""Currencies and languages: the two kinds of names that tools ask for and people write in many ways."""

import re

_CURRENCIES = """
USD dollar dollars us_dollar us_dollars american_dollar american_dollars bucks usd
EUR euro euros eur
GBP pound pounds british_pound british_pounds pounds_sterling sterling gbp
JPY yen japanese_yen jpy
CNY yuan chinese_yuan renminbi rmb cny
CHF franc francs swiss_franc swiss_francs chf
CAD canadian_dollar canadian_dollars cad
AUD australian_dollar australian_dollars aud
NZD new_zealand_dollar new_zealand_dollars nzd
INR rupee rupees indian_rupee indian_rupees inr
MXN mexican_peso mexican_pesos peso pesos mxn
BRL real reais brazilian_real brazilian_reais brl
KRW won korean_won south_korean_won krw
RUB ruble rubles russian_ruble russian_rubles rub
SEK swedish_krona swedish_kronor krona kronor sek
NOK norwegian_krone norwegian_kroner nok
DKK danish_krone danish_kroner dkk
PLN zloty polish_zloty pln
TRY turkish_lira lira try
ZAR rand south_african_rand zar
SGD singapore_dollar singapore_dollars sgd
HKD hong_kong_dollar hong_kong_dollars hkd
THB baht thai_baht thb
IDR rupiah indonesian_rupiah idr
ILS shekel shekels israeli_shekel ils
"""
CURRENCY_CODES = {
    word.replace("_", " "): line.split()[0] for line in _CURRENCIES.strip().splitlines() for word in line.split()[1:]
}
_WORDS_TOO = frozenset({"try", "won", "real", "rand", "rub"})
"""Currencies only after a number: whoever «won» was not paid in it."""
_PLAIN = sorted((one for one in CURRENCY_CODES if one not in _WORDS_TOO), key=len, reverse=True)
CURRENCY = re.compile(rf"(?i)\b(?:{'|'.join(_PLAIN)}|(?<=\d )(?:{'|'.join(sorted(_WORDS_TOO))}))\b")
LANGUAGE = re.compile(
    r"(?i)\b(?:English|German|French|Spanish|Italian|Portuguese|Dutch|Russian|Ukrainian|Polish|Czech|Slovak|Hungarian|"
    r"Romanian|Bulgarian|Greek|Turkish|Arabic|Hebrew|Persian|Farsi|Hindi|Urdu|Bengali|Tamil|Telugu|Punjabi|Chinese|"
    r"Mandarin|Cantonese|Japanese|Korean|Vietnamese|Thai|Indonesian|Malay|Filipino|Tagalog|Swahili|Swedish|Norwegian|"
    r"Danish|Finnish|Icelandic|Estonian|Latvian|Lithuanian|Croatian|Serbian|Slovenian|Catalan|Basque|Irish|Welsh|"
    r"Latin|Esperanto)\b"
)
