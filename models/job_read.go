package models

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sandyard/models/pg"
)

// What is read of jobs. Their arguments, inputs and outputs may have megabytes: nothing reads them that does not show
// them, and nothing large is read before its size is known.
const (
	// inlineOutput is how many bytes of a job's result and output Job reads with it.
	inlineOutput = 64 << 10
	// inlineResult is how many bytes a result in a list may have.
	inlineResult = 8 << 10
)

// jobColumns are the columns of a job that are short, whatever its tenant does.
var jobColumns = sync.OnceValue(func() string { //nolint:gochecknoglobals // a cache
	names, err := pg.Columns(&Job{})
	if err != nil {
		panic(err) // of the struct, whatever the input
	}
	long := []string{"args", "input", "result", "stdout", "stderr", "content"}
	short := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(long, name) })
	return strings.Join(short, ", ")
})

// resultBytes is the size of a result as text. What is not compressed is not read for it.
const resultBytes = `CASE WHEN pg_column_size(result) > 1500 THEN octet_length(result::text) ELSE coalesce(pg_column_size(result), 0) END`

// outputBytes is the size of what a job has to show.
const outputBytes = `(` + resultBytes + ` + coalesce(octet_length(stdout), 0) + coalesce(octet_length(stderr), 0) + coalesce(octet_length(content), 0))`

// Output names parts of what a job has to show.
type Output string

// The parts of a job's output.
const (
	OutputResult  Output = "result"
	OutputStdout  Output = "stdout"
	OutputStderr  Output = "stderr"
	OutputContent Output = "content"
)

// Job returns a tenant's job without its arguments and its input, or ErrNotFound. Where result and output have more
// than 64 KiB together, only a short result is read: Unread says how many bytes they have, and Output reads them.
func (s *Store) Job(ctx context.Context, tenantID, id string) (Job, error) {
	var row sizedJob
	err := s.db.WithContext(ctx).
		Table("jobs").
		Select(jobWithOutput()).
		Where("tenant_id = ? AND id = ?", tenantID, id).
		Take(&row).
		Error
	return row.job(inlineOutput), notFound(err)
}

// jobWithOutput are the columns of Job.
var jobWithOutput = sync.OnceValue(func() string { //nolint:gochecknoglobals // a cache
	columns := fmt.Sprintf("%s, %s AS output, CASE WHEN %s <= %d OR %s <= %d THEN result END AS result",
		jobColumns(), outputBytes, resultBytes, inlineResult, outputBytes, inlineOutput)
	for _, part := range []Output{OutputStdout, OutputStderr, OutputContent} {
		columns += fmt.Sprintf(", CASE WHEN %s <= %d THEN %s END AS %s", outputBytes, inlineOutput, part, part)
	}
	return columns
})

// sizedJob is a job with the bytes of what may not have been read.
type sizedJob struct {
	Job    Job `gorm:"embedded"`
	Output int
}

func (r sizedJob) job(inline int) Job {
	if r.Output > inline {
		r.Job.Unread = r.Output
	}
	return r.Job
}

// Output reads parts of what a job has to show into it. Reserve memory for j.Unread bytes first.
func (s *Store) Output(ctx context.Context, j *Job, parts ...Output) error {
	columns := make([]string, len(parts))
	for i, part := range parts {
		columns[i] = string(part)
	}
	var row Job
	err := s.db.WithContext(ctx).Select(columns).Where("tenant_id = ? AND id = ?", j.TenantID, j.ID).Take(&row).Error
	j.Result, j.Stdout, j.Stderr, j.Content, j.Unread = row.Result, row.Stdout, row.Stderr, row.Content, 0
	return notFound(err)
}

// JobWithInput returns a tenant's job with its arguments and its input, and without its output, or ErrNotFound.
func (s *Store) JobWithInput(ctx context.Context, tenantID, id string) (Job, error) {
	return takeOne[Job](s.db.WithContext(ctx).
		Select(jobColumns()+", args, input").
		Where("tenant_id = ? AND id = ?", tenantID, id))
}

// EndedJobs returns those of the jobs that have ended.
func (s *Store) EndedJobs(ctx context.Context, ids []string) ([]string, error) {
	var ended []string
	err := s.db.WithContext(ctx).
		Model(&Job{}).
		Where("id = ANY (?) AND finished_at IS NOT NULL", idArray(ids)).
		Pluck("id", &ended).
		Error
	return ended, err
}

// JobFilter selects jobs in List; empty fields match everything.
type JobFilter struct {
	Sandbox string
	Kind    string
	State   JobState
	Before  string // the last id of the page before
	Limit   int
}

// Jobs lists a tenant's jobs, newest first, without their arguments and outputs. Unread is the size of a result that
// has more than 8 KiB, which is not read either.
func (s *Store) Jobs(ctx context.Context, tenantID string, f JobFilter) ([]Job, error) {
	columns := jobColumns() + ", " + resultBytes + " AS output, CASE WHEN " + resultBytes + " <= ? THEN result END AS " +
		"result"
	q := s.db.WithContext(ctx).Table("jobs").Select(columns, inlineResult).Where("tenant_id = ?", tenantID)
	q = whereSet(q, "sandbox_id = ?", f.Sandbox)
	q = whereSet(q, "kind = ?", f.Kind)
	q = whereSet(q, "state = ?", f.State)
	q = whereSet(q, "id < ?", f.Before)
	var rows []sizedJob
	err := q.Order("id DESC").Limit(f.Limit).Find(&rows).Error
	jobs := make([]Job, len(rows))
	for i, r := range rows {
		jobs[i] = r.job(inlineResult)
	}
	return jobs, err
}
