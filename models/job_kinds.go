package models

import (
	"slices"
)

// Kinds of job that change what the tables say of a sandbox.
const (
	KindCreate = "create"
	KindDelete = "delete"
	KindPause  = "pause"
	KindResume = "resume"
)

// KindTimeout sets when a sandbox ends by itself.
const KindTimeout = "timeout"

// Kinds of job that run a command or act on a background exec.
const (
	KindExec       = "exec"
	KindExecWait   = "exec_wait"
	KindExecStdin  = "exec_stdin"
	KindExecSignal = "exec_signal"
	KindExecDelete = "exec_delete"
)

// Kinds of job about code that runs in a context, which keeps its state.
const (
	KindCode       = "code"
	KindCodeCreate = "code_create"
	KindCodeDelete = "code_delete"
)

// What a sandbox is wished to be.
const (
	DesiredRunning = "running"
	DesiredPaused  = "paused"
	DesiredDeleted = "deleted"
)

// Lane is a share of its tenant's window and of a worker's start slots that kinds of job have for themselves, so that
// jobs of one lane never wait for those of another.
type Lane string

// The lanes of jobs.
const (
	LaneRun    Lane = "run"    // programs of users, and waits for them: any of them may last
	LaneCreate Lane = "create" // new sandboxes
	LaneEnd    Lane = "end"    // deletes, pauses, resumes, timeouts: they make room, so nothing may hold them up
	LaneCall   Lane = "call"   // all others: files, ports, input and signals for commands
)

// Lanes lists the lanes with their kinds. A kind that is in none of the lists is a call.
func Lanes() map[Lane][]string {
	return map[Lane][]string{
		LaneRun:    {KindExec, KindExecWait, KindCode, KindCodeCreate, KindBuild},
		LaneCreate: {KindCreate},
		LaneEnd:    {KindDelete, KindPause, KindResume, KindTimeout},
		LaneCall:   nil,
	}
}

// LaneOf is the lane of a kind. The index jobs_ready and the dispatch call its twin in SQL, job_lane.
func LaneOf(kind string) Lane {
	for lane, kinds := range Lanes() {
		if slices.Contains(kinds, kind) {
			return lane
		}
	}
	return LaneCall
}
