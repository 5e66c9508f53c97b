package rest

import (
	"fmt"
	"strconv"
	"time"

	"sandyard/web/problem"
)

// PageParams choose a page of a list. Pages are stable: what is added meanwhile stands before the first one.
type PageParams struct {
	Cursor string `query:"cursor" pattern:"^(sb|job_|sch_|run_)[0-9a-v]{26}$" patternDescription:"a next_cursor" doc:"The next_cursor of the previous page"`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
}

// ReadNumber reads the cursor of a list whose rows have growing numbers; none = 0, the newest.
func ReadNumber(cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil {
		return 0, problem.Invalid("query.cursor", "must be the next_cursor of an earlier page")
	}
	return n, nil
}

// CutPage returns the rows of a page, of which one more than it holds was asked for, and the cursor of the next page,
// which is the last row's key.
func CutPage[T any, K string | int64](list []T, limit int, key func(T) K) (page []T, next string) {
	if len(list) <= limit {
		return list, ""
	}
	return list[:limit], fmt.Sprint(key(list[limit-1]))
}

// Docs are the documents of rows. JSON has an empty list for none.
func Docs[T, D any](rows []T, doc func(T) D) []D {
	docs := make([]D, len(rows))
	for i, row := range rows {
		docs[i] = doc(row)
	}
	return docs
}

// ReadMoment reads a moment that rows can have; none stands for a missing one.
func ReadMoment(location, text string, none time.Time) (time.Time, error) {
	if text == "" {
		return none, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if at = at.UTC(); err != nil || at.Year() < 2000 || at.Year() > 9998 {
		return at, problem.Invalid(location, "must be an RFC 3339 time in a year between 2000 and 9998")
	}
	return at, nil
}

// ReadSpan reads both ends of a filter; a missing one is the zero time.
func ReadSpan(from, to string) (begin, end time.Time, err error) {
	if begin, err = ReadMoment("query.from", from, begin); err == nil {
		end, err = ReadMoment("query.to", to, end)
	}
	return begin, end, err
}
