package web

// PageParams choose a page of a list. Pages are stable: what is added meanwhile stands before the first one.
type PageParams struct {
	Cursor string `query:"cursor" pattern:"^(sb|job_|sch_|run_)[0-9a-v]{26}$" patternDescription:"a next_cursor" doc:"The next_cursor of the previous page"`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50"`
}
