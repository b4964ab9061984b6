"""A flush strategy for lakelog: durable once per so many appends."""
