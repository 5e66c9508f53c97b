package spool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sandyard/providers"
)

// The scripts, in the order in which they call each other.
var (
	//go:embed scripts/share.sh
	shareScript string
	//go:embed scripts/lib.sh
	libScript string
	//go:embed scripts/run.sh
	runScript string
	//go:embed scripts/keep.sh
	keepScript string
	//go:embed scripts/kill.sh
	killScript string
	//go:embed scripts/forget.sh
	forgetScript string
	//go:embed scripts/status.sh
	statusScript string
)

const (
	patience   = 20 * time.Second // of one script that waits for a command that another one has started
	maxInline  = 32 << 10         // bytes of input in a script
	saltLength = 8
)

func number(n int64) string { return strconv.FormatInt(n, 10) }

// top is where the spool lies, for a user.
func (s *Spool) top() string {
	if s.o.Lasting {
		return "/var/tmp or /tmp"
	}
	return "/tmp"
}

// head begins every script about a command.
func (s *Spool) head(name string) string {
	top := "sy_top=/tmp\n"
	if s.o.Lasting {
		top += "[ ! -w /var/tmp ] || sy_top=/var/tmp\n"
	}
	return "sy_name=" + name + "\n" + top + shareScript + libScript
}

// upload is a file that a script takes from /tmp.
type upload struct {
	path string
	data []byte
}

// put gives the files to the sandbox.
func (s *Spool) put(ctx context.Context, uploads []upload) error {
	for _, u := range uploads {
		if err := s.shell.Put(ctx, u.path, u.data); err != nil {
			return err
		}
	}
	return nil
}

// settings are what the script that starts a command or attaches to it is told.
func (s *Spool) settings(cmd providers.Command, wait bool) string {
	waits, holds := 0, 0
	if wait {
		waits = 1
	}
	if wait && s.o.Patience == 0 {
		holds = 1
	}
	return fmt.Sprintf(
		"sy_max=%d sy_limit=%d sy_patience=%d sy_wait=%d sy_hold=%d\nsy_keep=%s\n",
		kept(cmd), hundredths(cmd.Timeout), hundredths(cmp.Or(s.o.Patience, patience)), waits, holds,
		Quote(shareScript+keepScript),
	)
}

// attach is the script that waits for a command which was started.
func (s *Spool) attach(cmd providers.Command) string {
	const none = `deliver() {
	case $sy_run in "$sy_dir/run") answer none ;; *) answer refused process ;; esac # what has not begun may be tried again
	exit 0
}
discard() { :; }
`
	return s.head(cmd.Name) + s.settings(cmd, true) + none + runScript
}

// start is the script that starts cmd, or attaches to it, and the files that it needs.
func (s *Spool) start(cmd providers.Command, wait bool) (text string, uploads []upload) {
	base := "/tmp/.sandyard-in-" + cmd.Name + "-" + strings.ToLower(rand.Text()[:saltLength])
	var b strings.Builder
	b.WriteString(s.settings(cmd, wait) + "deliver() {\n")
	deliver := func(file, from string) {
		fmt.Fprintf(&b, "\t%s >\"$1/%s.$$\" && mv -f \"$1/%s.$$\" \"$1/%s\" || return 1\n", from, file, file, file)
	}
	deliver("cmd", decode([]byte(s.command(cmd))))
	switch {
	case len(cmd.Stdin) > maxInline:
		uploads = append(uploads, upload{base + ".in", cmd.Stdin})
		deliver("in", "cat "+base+".in")
	case len(cmd.Stdin) > 0:
		deliver("in", decode(cmd.Stdin))
	}
	discard := ":"
	if len(uploads) > 0 {
		discard = "rm -f " + base + ".in 2>/dev/null"
	}
	b.WriteString("}\ndiscard() { " + discard + "; }\n")
	text = s.head(cmd.Name) + b.String() + runScript
	if len(text) > MaxScript {
		uploads = append(uploads, upload{base + ".sh", []byte("rm -f " + base + ".sh 2>/dev/null\n" + text)})
		text = ". " + base + ".sh\n"
	}
	return text, uploads
}

// decode prints data.
func decode(data []byte) string {
	return "printf %s " + Quote(base64.StdEncoding.EncodeToString(data)) + " | base64 -d"
}

// said is what a script has answered.
type said struct {
	state string // ended, running, none, done, early, owner or refused
	words []string
	body  []byte
}

// ask runs a script and reads its first line.
func (s *Spool) ask(ctx context.Context, user, text string, limit int64) (said, error) {
	out, err := s.shell.Script(ctx, user, text, limit+maxHead)
	if err != nil {
		return said{}, err
	}
	if len(out) == 0 { // no shell came up, or it was killed before it said a word
		return said{}, noProcess()
	}
	first, body, found := bytes.Cut(out[:min(len(out), maxHead)], []byte("\n"))
	words := strings.Fields(string(first))
	if !found || len(words) < 2 || words[0] != "spool1" {
		return said{}, providers.Internal.Errorf("the sandbox's shell did not run the script for the command")
	}
	if words[1] == "refused" {
		return said{}, s.refusal(words[2:])
	}
	if len(out) > maxHead {
		body = out[len(first)+1:]
	}
	return said{words[1], words[2:], body}, nil
}

// noProcess is the guest's error for the same: a retry finds how the command stands, and starts it if it has not begun.
func noProcess() error {
	return providers.Busy.Errorf(
		"the sandbox cannot start another process: its limit of processes or memory is reached; " +
			"end some, or raise pids or memory_mb",
	)
}

// refusal is why a script has done nothing, or not all.
func (s *Spool) refusal(why []string) error {
	switch first(why) {
	case "process":
		return noProcess()
	case "space":
		return providers.NoSpace.Errorf("the sandbox has no room in %s for the command", s.top())
	default:
		return providers.Internal.Errorf(
			"the directory of the commands in the sandbox's %s belongs to another user; "+
				"remove it, or create another sandbox",
			s.top(),
		)
	}
}

// result reads what show has printed.
func (a said) result(s *Spool, cmd providers.Command) (providers.Result, error) {
	broken := providers.Internal.Errorf("the sandbox did not report how the command ended")
	if len(a.words) != 7 {
		return providers.Result{}, broken
	}
	var n [7]int64
	for i, text := range a.words {
		v, err := strconv.ParseInt(text, 10, 64)
		if i != 1 && (err != nil || v < 0) {
			return providers.Result{}, broken
		}
		n[i] = v
	}
	code, took, outs, errs, out, errOut := n[0], n[2], n[3], n[4], n[5], n[6]
	if limit := kept(cmd); out > limit || errOut > limit || out+errOut != int64(len(a.body)) {
		return providers.Result{}, broken
	}
	switch a.words[1] {
	case "dir":
		return providers.Result{}, providers.NoDir.Errorf(
			"there is no directory '%s' in the sandbox, or it may not be entered",
			s.dir(cmd),
		)
	case "program":
		return providers.Result{}, providers.NoCommand.Errorf(
			"there is no program '%s' in the sandbox",
			first(cmd.Argv),
		)
	case "lost":
		return providers.Result{}, providers.Internal.Errorf(
			"how the command ended, and what it printed at last, is lost: the process in the sandbox that kept it was killed",
		)
	case "output":
		return providers.Result{}, providers.Internal.Errorf(
			"the command ended with exit code %d, but output of it is lost: the sandbox had no room to read or keep it",
			code&0xff,
		)
	}
	res := providers.Result{
		ExitCode: int(code & 0xff), Signal: signalOf(code), TimedOut: a.words[1] == "timeout",
		Stdout: a.body[:out:out], Stderr: a.body[out:], StdoutBytes: max(outs, out), StderrBytes: max(errs, errOut),
		Duration: max(time.Duration(min(took, 1<<40))*10*time.Millisecond, time.Millisecond),
	}
	return res, nil
}

func first(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[0]
}
