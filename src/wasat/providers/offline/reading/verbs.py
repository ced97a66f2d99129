"""Verbs with which people have something done."""

from wasat.providers.offline.reading.words import word_set

ACTING = word_set(
    "delete remove erase clear drop cancel abort revoke transfer pay send email mail message text call phone notify "
    "order buy purchase sell book reserve rent create add make insert write post publish upload submit update change "
    "modify edit set adjust move rename reschedule schedule play pause resume start stop run execute open close turn "
    "switch lock unlock enable disable invite assign approve reject refund return ship deploy restart reboot install "
    "block ban share charge withdraw deposit subscribe unsubscribe register enroll log archive merge copy dim print "
    "save store trigger launch shutdown"
)
"""What is called by one of these changes something."""
