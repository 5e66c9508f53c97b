// Package protocol is what the guest and the worker say to each other beyond envd's own protocol: named commands, their
// headers and reports, and the reasons behind an error.
package protocol

import "time"

// Request headers of a process.Process/Start call.
const (
	// ExecHeader names the command. A name is started at most once in a guest's life; another Start attaches.
	ExecHeader = "Sandyard-Exec"
	// ShellHeader set to "1" says that the one argument is a script for bash -c, or sh -c without bash.
	ShellHeader = "Sandyard-Shell"
	// MergeHeader set to "1" makes stderr the same pipe as stdout, so that both keep the order in which they were
	// written.
	MergeHeader = "Sandyard-Merge"
	// StdoutOffsetHeader and StderrOffsetHeader say how many bytes of each stream the caller already has.
	StdoutOffsetHeader = "Sandyard-Stdout-Offset"
	StderrOffsetHeader = "Sandyard-Stderr-Offset"
	// MaxOutputHeader is how many bytes from the beginning of each stream are kept.
	MaxOutputHeader = "Sandyard-Max-Output"
)

// AgeHeader of a Start answer is how long ago the command started, in milliseconds.
const AgeHeader = "Sandyard-Age-Ms"

// ReportTrailer of a Start answer holds the ExecInfo of the finished command as JSON.
const ReportTrailer = "Sandyard-Report"

// Headers of GET and POST /files.
const (
	// MaxBytesHeader is the largest file that a GET may answer with; a larger one is ReasonTooLarge.
	MaxBytesHeader = "Sandyard-Max-Bytes"
	// ModeHeader is the permissions of a written file in octal, 0644 without it; of a file that is read in the answer.
	ModeHeader = "Sandyard-Mode"
	// SizeHeader and ModifiedHeader of an answer are the file's whole size and when it was changed, in Unix nanoseconds.
	SizeHeader     = "Sandyard-Size"
	ModifiedHeader = "Sandyard-Modified"
	// AboutHeader set to "1" asks a GET for the headers alone: the answer is 204.
	AboutHeader = "Sandyard-About"
)

// ReasonHeader is one of the reasons, on an error answer (for a Connect stream: in the error's metadata).
const ReasonHeader = "Sandyard-Reason"

// The reasons.
const (
	ReasonFileNotFound = "file_not_found"
	ReasonNotAFile     = "not_a_file"
	ReasonNotADir      = "not_a_directory"
	ReasonExists       = "file_exists"
	ReasonDenied       = "permission_denied"
	ReasonInvalidPath  = "invalid_path"
	ReasonNoSpace      = "no_space"
	ReasonTooLarge     = "too_large"
	ReasonArchive      = "invalid_archive"
	ReasonNoCommand    = "command_not_found"
	ReasonNoDir        = "cwd_not_found"
	ReasonNoUser       = "user_not_available"
	ReasonInvalid      = "invalid_argument"
	ReasonBusy         = "busy"
	ReasonNoExec       = "exec_not_found"
	ReasonNoProcess    = "process_not_found"
	ReasonUnsupported  = "unsupported"
	ReasonNoAccess     = "access_denied"
	ReasonNoMatch      = "text_not_found"
	ReasonAmbiguous    = "text_ambiguous"
	ReasonInternal     = "internal"
)

// ExecInfo reports on one named command: the answer of GET /execs/{name}, an element of GET /execs and the report of a
// finished Start.
type ExecInfo struct {
	Name        string `json:"name"`
	Running     bool   `json:"running"`
	Pid         int    `json:"pid"`
	AgeMs       int64  `json:"age_ms"`           // since it started
	ExitCode    int    `json:"exit_code"`        // 128+n when signal n ended it
	Signal      int    `json:"signal,omitempty"` // the signal that ended it
	KillReason  string `json:"kill_reason,omitempty"`
	OOMKills    int64  `json:"oom_kills,omitempty"`
	StdoutBytes int64  `json:"stdout_bytes"` // written by the command
	StderrBytes int64  `json:"stderr_bytes"`
	StdoutKept  int64  `json:"stdout_kept"`
	StderrKept  int64  `json:"stderr_kept"`
	DurationMs  int64  `json:"duration_ms"`

	Background bool `json:"background,omitempty"` // started by a Launch
	Forgotten  bool `json:"forgotten,omitempty"`  // its output is dropped
	Terminal   bool `json:"terminal,omitempty"`   // it runs on one
}

// TreeReport is the answer of POST /tree.
type TreeReport struct {
	Files       int      `json:"files"`
	Directories int      `json:"directories"`
	Links       int      `json:"links"`
	Bytes       int64    `json:"bytes"`
	Stripped    []string `json:"stripped,omitempty"`
}

// Claim is the body of POST /claim: what its owner's sandbox has that one in waiting has not.
type Claim struct {
	Env map[string]string `json:"env"` // of every command from now on, beside what it has
}

// Init is the body of POST /init: what the sandbox's calls go by from now on. What is left out stays as it is.
type Init struct {
	EnvVars        map[string]string `json:"envVars,omitempty"`        // of every later command, beside what it has
	AccessToken    *string           `json:"accessToken,omitempty"`    // that outsiders need; empty = none
	Timestamp      *time.Time        `json:"timestamp,omitempty"`      // an init older than the last one changes nothing
	DefaultUser    string            `json:"defaultUser,omitempty"`    // a name of the sandbox's user
	DefaultWorkdir string            `json:"defaultWorkdir,omitempty"` // absolute
}

// Network is the body of PUT /network: whether programs are offered a proxy to the outside from now on.
type Network struct {
	On bool `json:"on"`
}

// ProxyPort is the port on the sandbox's loopback where the proxy listens, unless a program has taken it.
const ProxyPort = 49982

// EnvdEntry is what envd tells of a file that was written; of the answer of POST /files it is one element.
type EnvdEntry struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

// FileEntry is what a worker is told of a path. It has all of EnvdEntry.
type FileEntry struct {
	Path       string `json:"path"`
	Name       string `json:"name"`
	Type       string `json:"type"`
	Size       int64  `json:"size"`
	Mode       uint32 `json:"mode"`
	Owner      string `json:"owner,omitempty"`
	Group      string `json:"group,omitempty"`
	ModifiedMs int64  `json:"modified_ms"`
	Target     string `json:"target,omitempty"` // of a symbolic link

	Metadata map[string]string `json:"metadata,omitempty"`
}

// FileError is the body of a failed /files or /execs call, as envd writes it.
type FileError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Targets of a stream: its first three bytes are the target and a big-endian port.
const (
	TargetGuest byte = 'H' // the guest's HTTP handler; the port is 0
	TargetEnvd  byte = 'E' // envd's calls alone, behind the access token: for whoever is not the worker; the port is 0
	TargetPort  byte = 'P' // a TCP port on the sandbox's loopback; the guest answers PortOpen or PortClosed first
)

// Answers to a TargetPort stream.
const (
	PortOpen   byte = 1
	PortClosed byte = 0
)

// The names of files that the guest is writing begin with these, before they get their own; those that watch are told
// of the file's own name only.
const (
	TempNew     = ".sandyard-new-"
	TempReplace = ".sandyard-replace-" // a file of that name exists
)

const (
	// AccessTokenHeader is envd's, for outsiders.
	AccessTokenHeader = "X-Access-Token"
	// HeaderPrefix begins the names of our own headers. What outsiders send under it is dropped.
	HeaderPrefix = "Sandyard-"
)

// The HTTP paths of calls that only the worker can make.
const (
	ClaimPath = "/claim"
	ExecsPath = "/execs"
	InitPath  = "/init"
	// NetworkPath takes a PUT of Network.
	NetworkPath = "/network"
	// ProcessesPath lists processes, see ProcessList.
	ProcessesPath = "/processes"

	EditPath      = "/files/edit"
	GlobPath      = "/files/glob"
	GrepPath      = "/files/grep"
	ReadManyPath  = "/files/read-many"
	WriteManyPath = "/files/write-many"
	TreePath      = "/tree"
)

// The HTTP paths of envd's calls.
const (
	ComposePath = "/files/compose"
	EnvsPath    = "/envs"
	FilesPath   = "/files"
	HealthPath  = "/health"
	MetricsPath = "/metrics"
)
