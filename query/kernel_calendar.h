/* query/kernel_calendar.h - years, months, weeks and parts of a day, as PostgreSQL has them: device code without a state.
 *
 * Dates are days, timestamps microseconds, both since 2000-01-01, times microseconds of a day. Years have 365 or
 * 366 days as in the Gregorian calendar, also before it was introduced; they are counted here from March 1 on, so
 * that a leap day is a year's last one.
 *
 * Threads: any.
 */
#ifndef GQUERY_KERNEL_CALENDAR_H
#define GQUERY_KERNEL_CALENDAR_H

#include <gvmem/device/kernel.h>

#include "query/program.h"

#define BAD_CALENDAR 0x8000000000000001u /* no value of a date or timestamp */
#define DAY_US 86400000000
#define DAYS_0_TO_2000 730425 /* from March 1 of the year 0 */
#define DAYS_1970_TO_2000 10957
/* Finite ones: from 4714-11-24 BC on, before 294277-01-01. */
#define TIMESTAMP_LEAST (-211813488000000000)
#define TIMESTAMP_LIMIT 9223371331200000000
#define DAY_LEAST (-2451545)
#define DAY_MOST 106751983 /* that a timestamp has */

/* Days are counted from March 1 of a year -8000, before all dates, so that they are not negative. */
#define ERA_DAYS 146097u /* 400 years */
#define ERAS_BEFORE 20u
#define DAYS_BEFORE (DAYS_0_TO_2000 + ERAS_BEFORE * ERA_DAYS)
#define YEARS_BEFORE (400 * (int32_t)ERAS_BEFORE)

/* The 1st of the month, 1 to 12. */
GVM_DEVICE int32_t day_of(int32_t year, uint32_t month)
{
    const uint32_t y = (uint32_t)(year + YEARS_BEFORE) - (month <= 2), m = (month + 9) % 12;

    return (int32_t)(y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 - DAYS_BEFORE);
}

/* day: from 1 on */
GVM_DEVICE int32_t date_of(int32_t days, uint32_t *month, uint32_t *day)
{
    const uint32_t z = (uint32_t)days + DAYS_BEFORE, era = z / ERA_DAYS, of_era = z - era * ERA_DAYS;
    const uint32_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const uint32_t of_year = of_era - (y * 365 + y / 4 - y / 100), m = (5 * of_year + 2) / 153;

    *day = of_year - (153 * m + 2) / 5 + 1;
    *month = (m + 2) % 12 + 1;
    return (int32_t)(era * 400 + y + (m >= 10)) - YEARS_BEFORE;
}

/* From Monday, 0. DAYS_BEFORE is a Wednesday's. */
GVM_DEVICE int32_t weekday_of(int32_t days)
{
    return (int32_t)(((uint32_t)days + DAYS_BEFORE + 2) % 7);
}

/* There is no year 0. */
GVM_DEVICE int32_t shown_year(int32_t year)
{
    return year > 0 ? year : year - 1;
}

GVM_DEVICE int32_t field_of_day(uint32_t what, int32_t days)
{
    uint32_t month, day;
    int32_t year;

    /* ISO 8601: a week belongs to the year of its Thursday. */
    if (what == GQUERY_WEEK || what == GQUERY_ISO_YEAR)
        days += 3 - weekday_of(days);
    year = date_of(days, &month, &day);
    switch (what) {
    case GQUERY_YEAR:
    case GQUERY_ISO_YEAR: return shown_year(year);
    case GQUERY_QUARTER: return (int32_t)(month + 2) / 3;
    case GQUERY_MONTH: return (int32_t)month;
    case GQUERY_DAY: return (int32_t)day;
    case GQUERY_DAY_OF_WEEK: return (weekday_of(days) + 1) % 7;
    case GQUERY_ISO_DAY_OF_WEEK: return weekday_of(days) + 1;
    case GQUERY_DAY_OF_YEAR: return days - day_of(year, 1) + 1;
    case GQUERY_WEEK: return (days - day_of(year, 1)) / 7 + 1;
    case GQUERY_TO_YEAR: return day_of(year, 1);
    case GQUERY_TO_QUARTER: return day_of(year, (month - 1) / 3 * 3 + 1);
    case GQUERY_TO_MONTH: return days - (int32_t)day + 1;
    case GQUERY_TO_WEEK: return days - weekday_of(days);
    default: return days; /* GQUERY_TO_DAY, GQUERY_TO_DATE */
    }
}

/* time: of the day. */
GVM_DEVICE int64_t field_of_time(uint32_t what, int64_t time)
{
    const uint32_t seconds = (uint32_t)((uint64_t)time / 1000000);

    switch (what) {
    case GQUERY_HOUR: return seconds / 3600;
    case GQUERY_MINUTE: return seconds / 60 % 60;
    case GQUERY_SECOND: return time - (int64_t)(seconds / 60) * 60000000;
    case GQUERY_TO_HOUR: return (int64_t)(seconds / 3600) * 3600000000;
    case GQUERY_TO_MINUTE: return (int64_t)(seconds / 60) * 60000000;
    default: return (int64_t)seconds * 1000000; /* GQUERY_TO_SECOND */
    }
}

GVM_DEVICE int is_infinite_date(uint32_t of, uint64_t v)
{
    return of == GQUERY_OF_DATE ? v == 0x7fffffffu || v == 0xffffffff80000000u
                                : v == ~0ull >> 1 || v == 1ull << 63;
}

GVM_DEVICE uint64_t infinite_field(uint32_t what, uint64_t v)
{
    const int is_less = (int64_t)v < 0;

    if (what == GQUERY_TO_DATE)
        return is_less ? 0xffffffff80000000u : 0x7fffffffu;
    if (what >= GQUERY_TO_TIMESTAMP)
        return is_less ? 1ull << 63 : ~0ull >> 1;
    return BAD_CALENDAR;
}

/* offset: of the local time from v, in microseconds. BAD_CALENDAR: an infinite value has no such field, or what
 * would be returned is out of range. */
GVM_DEVICE uint64_t calendar(uint32_t what, uint32_t of, int64_t offset, uint64_t v)
{
    const int is_time = what >= GQUERY_TO_HOUR || (what >= GQUERY_HOUR && what <= GQUERY_SECOND);
    int64_t days = 0, time = (int64_t)v;

    if (of != GQUERY_OF_TIME && is_infinite_date(of, v))
        return infinite_field(what, v);
    if (of == GQUERY_OF_TIMESTAMP && what != GQUERY_EPOCH) {
        time = (int64_t)(v + (uint64_t)offset); /* wraps for what is no timestamp */
        days = time / DAY_US - (time % DAY_US < 0);
        time = time % DAY_US + (time % DAY_US < 0 ? DAY_US : 0);
    } else if (of == GQUERY_OF_DATE) {
        days = time;
        time = -offset;
    }
    if (days < DAY_LEAST || (what == GQUERY_TO_TIMESTAMP && days > DAY_MOST))
        return BAD_CALENDAR;
    if (what == GQUERY_EPOCH)
        return of == GQUERY_OF_DATE ? (uint64_t)((days + DAYS_1970_TO_2000) * 86400)
                                    : v + (of == GQUERY_OF_TIME ? 0 : DAYS_1970_TO_2000 * DAY_US);
    if (is_time) {
        time = field_of_time(what, time) - (what < GQUERY_TO_HOUR ? 0 : offset);
    } else if (what != GQUERY_TO_TIMESTAMP) {
        days = field_of_day(what, (int32_t)days);
        time = -offset;
    }
    if (what < GQUERY_TO_TIMESTAMP)
        return (uint64_t)(is_time ? time : days);
    time += days * DAY_US;
    return time >= TIMESTAMP_LEAST && time < TIMESTAMP_LIMIT ? (uint64_t)time : BAD_CALENDAR;
}

#endif
