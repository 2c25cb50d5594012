/*
 * postgres/plcuda/device/dates.h - dates and timestamps as PostgreSQL has them: days, and microseconds, since 2000-01-01.
 *
 * Of the proleptic Gregorian calendar, as in SQL: there is no year 0, -1 is 1 BC. Timestamps with time zone are taken in UTC. Infinite
 * ones have no parts; truncation leaves them as they are.
 */
#ifndef PLCUDA_DEVICE_DATES_H
#define PLCUDA_DEVICE_DATES_H

#include "order.h"

#define PLCUDA_DATE_BEGIN	   (-0x7fffffff - 1) /* -infinity; infinity */
#define PLCUDA_DATE_END		   0x7fffffff
#define PLCUDA_TIMESTAMP_BEGIN (-0x7fffffffffffffff - 1)
#define PLCUDA_TIMESTAMP_END   0x7fffffffffffffff
#define PLCUDA_DATE_FIRST \
	(-2451545) /* 4714-11-24 BC, and what PostgreSQL's dates and timestamps end before */
#define PLCUDA_DATE_AFTER_LAST	   2145031949
#define PLCUDA_TIMESTAMP_DAY_AFTER 106751983
#define PLCUDA_DAY_US			   86400000000
#define PLCUDA_EPOCH_US			   946684800000000 /* from 1970-01-01 on */

typedef enum plcuda_unit
{
	PLCUDA_MILLISECOND,
	PLCUDA_SECOND,
	PLCUDA_MINUTE,
	PLCUDA_HOUR,
	PLCUDA_DAY,
	PLCUDA_WEEK, /* from Monday on */
	PLCUDA_MONTH,
	PLCUDA_QUARTER,
	PLCUDA_YEAR
} plcuda_unit;

typedef struct plcuda_time_parts
{
	int32_t year, month, day;
	int32_t hour, minute, second, microsecond;
} plcuda_time_parts;

GVM_DEVICE int64_t
plcuda_floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}
GVM_DEVICE int64_t
plcuda_floor_mod(int64_t a, int64_t b)
{
	return a % b + (a % b < 0 ? b : 0);
}

/* ---- dates. Years here are counted from 1 BC as 0, and begin in March: then leap days are the last ones. */

#define PLCUDA_DAYS_400_YEARS 146097
#define PLCUDA_DATE_YEAR_0	  730425 /* days from 0000-03-01 to 2000-01-01 */

GVM_DEVICE void
plcuda_split_date(int64_t date, plcuda_time_parts *out)
{
	const int64_t from_0 = date + PLCUDA_DATE_YEAR_0;
	const int64_t cycle = plcuda_floor_div(from_0, PLCUDA_DAYS_400_YEARS);
	const int32_t in_cycle = (int32_t) (from_0 - cycle * PLCUDA_DAYS_400_YEARS);
	const int32_t year = (in_cycle - in_cycle / 1460 + in_cycle / 36524 - in_cycle / 146096) / 365;
	const int32_t in_year = in_cycle - (365 * year + year / 4 - year / 100);
	const int32_t month = (5 * in_year + 2) / 153; /* 0: March */

	out->day = in_year - (153 * month + 2) / 5 + 1;
	out->month = month < 10 ? month + 3 : month - 9;
	out->year = (int32_t) (cycle * 400) + year + (month >= 10);
	out->year -= out->year <= 0;
}

GVM_DEVICE int64_t
plcuda_join_date(int32_t year, int32_t month, int32_t day)
{
	const int32_t from_march = month > 2 ? month - 3 : month + 9;
	const int64_t y = (int64_t) year + (year < 0) - (month <= 2);
	const int64_t cycle = plcuda_floor_div(y, 400);
	const int32_t in_cycle = (int32_t) (y - cycle * 400);

	return cycle * PLCUDA_DAYS_400_YEARS + in_cycle * 365 + in_cycle / 4 - in_cycle / 100 +
		(153 * from_march + 2) / 5 + day - 1 - PLCUDA_DATE_YEAR_0;
}

GVM_DEVICE int
plcuda_date_is_finite(int32_t date)
{
	return date != PLCUDA_DATE_BEGIN && date != PLCUDA_DATE_END;
}

/* Year, month and day; 0 each if it is infinite. */
GVM_DEVICE plcuda_time_parts
plcuda_date_to_parts(int32_t date)
{
	plcuda_time_parts r = {0, 0, 0, 0, 0, 0, 0};

	if (plcuda_date_is_finite(date))
		plcuda_split_date(date, &r);
	return r;
}

/* As make_date() of SQL. False: there is no such date. */
GVM_DEVICE int
plcuda_date_from_parts(int32_t year, int32_t month, int32_t day, int32_t *out)
{
	const int64_t	  date = month >= 1 && month <= 12 ? plcuda_join_date(year, month, day) : 0;
	plcuda_time_parts same;

	if (year == 0 || month < 1 || month > 12 || day < 1 || day > 31 || date < PLCUDA_DATE_FIRST ||
		date >= PLCUDA_DATE_AFTER_LAST)
		return 0;
	plcuda_split_date(date, &same);
	if (same.day != day)
		return 0;
	*out = (int32_t) date;
	return 1;
}

/* As in extract(): dow is 0 on Sunday, doy is 1 on January 1, week is that of ISO 8601. Of finite dates. */
GVM_DEVICE int32_t
plcuda_date_dow(int32_t date)
{
	return (int32_t) plcuda_floor_mod((int64_t) date + 6, 7);
}
GVM_DEVICE int32_t
plcuda_date_doy(int32_t date)
{
	return (int32_t) (date - plcuda_join_date(plcuda_date_to_parts(date).year, 1, 1)) + 1;
}
GVM_DEVICE int32_t
plcuda_date_week(int32_t date)
{
	return (plcuda_date_doy(date - (plcuda_date_dow(date) + 6) % 7 + 3) - 1) / 7 + 1;
}

/* ---- timestamps */

GVM_DEVICE int
plcuda_timestamp_is_finite(int64_t timestamp)
{
	return timestamp != PLCUDA_TIMESTAMP_BEGIN && timestamp != PLCUDA_TIMESTAMP_END;
}

/* The day; infinite ones are infinite dates. */
GVM_DEVICE int32_t
plcuda_timestamp_date(int64_t timestamp)
{
	if (timestamp == PLCUDA_TIMESTAMP_BEGIN)
		return PLCUDA_DATE_BEGIN;
	if (timestamp == PLCUDA_TIMESTAMP_END)
		return PLCUDA_DATE_END;
	return (int32_t) plcuda_floor_div(timestamp, PLCUDA_DAY_US);
}

/* Midnight of a day. False: it is beyond timestamps. */
GVM_DEVICE int
plcuda_date_timestamp(int32_t date, int64_t *out)
{
	if (date == PLCUDA_DATE_BEGIN)
		*out = PLCUDA_TIMESTAMP_BEGIN;
	else if (date == PLCUDA_DATE_END)
		*out = PLCUDA_TIMESTAMP_END;
	else if (date < PLCUDA_DATE_FIRST || date >= PLCUDA_TIMESTAMP_DAY_AFTER)
		return 0;
	else
		*out = date * PLCUDA_DAY_US;
	return 1;
}

/* 0 each if it is infinite. */
GVM_DEVICE plcuda_time_parts
plcuda_timestamp_to_parts(int64_t timestamp)
{
	plcuda_time_parts r = {0, 0, 0, 0, 0, 0, 0};
	const int64_t	  us = plcuda_floor_mod(timestamp, PLCUDA_DAY_US);

	if (!plcuda_timestamp_is_finite(timestamp))
		return r;
	plcuda_split_date(plcuda_floor_div(timestamp, PLCUDA_DAY_US), &r);
	r.hour = (int32_t) (us / 3600000000);
	r.minute = (int32_t) (us / 60000000 % 60);
	r.second = (int32_t) (us / 1000000 % 60);
	r.microsecond = (int32_t) (us % 1000000);
	return r;
}

/* False: there is no such timestamp. Hours are 0 to 23, seconds 0 to 59. */
GVM_DEVICE int
plcuda_timestamp_from_parts(plcuda_time_parts p, int64_t *out)
{
	int32_t date;

	if (!plcuda_date_from_parts(p.year, p.month, p.day, &date) || !plcuda_date_timestamp(date, out) ||
		p.hour < 0 || p.hour > 23 || p.minute < 0 || p.minute > 59 || p.second < 0 ||
		p.second > 59 || p.microsecond < 0 || p.microsecond > 999999)
		return 0;
	*out += ((p.hour * 60 + p.minute) * 60 + p.second) * (int64_t) 1000000 + p.microsecond;
	return 1;
}

/* Seconds since 1970-01-01, as date_part('epoch'). */
GVM_DEVICE double
plcuda_timestamp_epoch(int64_t timestamp)
{
	plcuda_bits infinite;

	infinite.u64 = 0x7ff0000000000000u;
	if (timestamp == PLCUDA_TIMESTAMP_BEGIN)
		return -infinite.f64;
	if (timestamp == PLCUDA_TIMESTAMP_END)
		return infinite.f64;
	if (timestamp > PLCUDA_TIMESTAMP_END - PLCUDA_EPOCH_US)
		return ((double) timestamp + (double) PLCUDA_EPOCH_US) / 1e6;
	return (double) (timestamp + PLCUDA_EPOCH_US) / 1e6;
}

/* The first day of the week, month, quarter or year. */
GVM_DEVICE int64_t
plcuda_trunc_days(int64_t date, plcuda_unit unit)
{
	plcuda_time_parts p;

	if (unit == PLCUDA_WEEK)
		return date - plcuda_floor_mod(date + 5, 7);
	plcuda_split_date(date, &p);
	if (unit == PLCUDA_QUARTER)
		p.month -= (p.month - 1) % 3;
	return plcuda_join_date(p.year, unit == PLCUDA_YEAR ? 1 : p.month, 1);
}

/* As date_trunc() of SQL. */
GVM_DEVICE int64_t
plcuda_timestamp_trunc(int64_t timestamp, plcuda_unit unit)
{
	int64_t us = PLCUDA_DAY_US;

	if (!plcuda_timestamp_is_finite(timestamp))
		return timestamp;
	if (unit == PLCUDA_MILLISECOND)
		us = 1000;
	else if (unit == PLCUDA_SECOND)
		us = 1000000;
	else if (unit == PLCUDA_MINUTE)
		us = 60000000;
	else if (unit == PLCUDA_HOUR)
		us = 3600000000;
	else if (unit != PLCUDA_DAY)
		return plcuda_trunc_days(plcuda_floor_div(timestamp, PLCUDA_DAY_US), unit) * PLCUDA_DAY_US;
	return timestamp - plcuda_floor_mod(timestamp, us);
}

#endif
