"""Continual releases by a trusted curator. Pure: no HTTP, no database, no clock; noise comes in as an argument."""
