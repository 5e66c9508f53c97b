package codecontext

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"sandyard/providers"
)

// Wish is a context that is wanted.
type Wish struct {
	ID       string // names the wish: in one sandbox it starts at most one context
	Language string // one of Languages
	Context  string // empty = the language's own
	Env      map[string]string
	Dir      string // where it begins; empty = the work directory
}

func (w Wish) cell() Cell { return Cell{ID: w.ID, Language: w.Language, Context: w.Context} }

// Turn waits until no cell is just being begun in the wish's context.
type Turn func(context.Context) (giveBack func(), err error)

// Create starts the context, where none of its name runs, and returns once it takes cells. The result says whether one
// ran that another wish or a cell has started; of another language that is an error.
func Create(ctx context.Context, box Box, w Wish, turn Turn) (existing bool, err error) {
	l, err := w.cell().language()
	if err != nil {
		return false, err
	}
	cmd := command(w.cell(), l)
	cmd.Env, cmd.Dir = w.Env, w.Dir
	name, err := holder(ctx, box, w, cmd.Name)
	if name == "" && err == nil {
		name, err = begin(ctx, box, w, cmd, l, turn)
	}
	if err != nil || name != cmd.Name {
		return err == nil, err
	}
	return false, ready(ctx, box, name, l)
}

// holder is the command that is the context already: one that runs, or the wish's own. Empty = none.
func holder(ctx context.Context, box Box, w Wish, own string) (string, error) {
	all, err := box.Execs(ctx)
	running := ""
	for _, e := range all {
		if e.ID == own {
			return own, nil
		}
		name, lang := partsOf(e.ID)
		if name != w.cell().context() || !e.Running {
			continue
		}
		if running = e.ID; lang != w.Language {
			err = foreign(name, lang, w.Language)
		}
	}
	return running, err
}

// begin launches the context, unless somebody has before its turn came.
func begin(ctx context.Context, box Box, w Wish, cmd providers.Command, l language, turn Turn) (string, error) {
	giveBack, err := turn(ctx)
	if err != nil {
		return "", err
	}
	defer giveBack()
	if name, err := holder(ctx, box, w, cmd.Name); name != "" || err != nil {
		return name, err
	}
	return cmd.Name, launch(ctx, box, cmd, l)
}

// Abandon ends what Create has started for the wish. What it has not, or what has ended, is a success.
func Abandon(ctx context.Context, box Box, w Wish) error {
	l, err := w.cell().language()
	if err != nil {
		return err
	}
	return box.Kill(ctx, command(w.cell(), l).Name)
}

// ready waits until a context's driver has told something: before the first cell that is only that it is there.
func ready(ctx context.Context, box Box, command string, l language) error {
	for end := time.Now().Add(startLimit); ; {
		out, err := box.Output(
			ctx,
			command,
			providers.OutputQuery{Stream: providers.Report, Wait: min(look, max(0, time.Until(end)))},
		)
		switch {
		case isClass(err, providers.NoExec): // it has been deleted, and forgotten
			return nil
		case err != nil:
			return err
		case out.Begin > 0, len(out.Data) > 0:
			return nil
		case !out.Exec.Running:
			return stillborn(ctx, box, command, out.Exec, l)
		case !time.Now().Before(end):
			_ = box.Kill(context.WithoutCancel(ctx), command)
			return providers.NoContext.Errorf(
				"the interpreter did not start within %v, so it was killed; try again",
				startLimit,
			)
		}
	}
}

// stillborn says why a context has ended before it could take a cell.
func stillborn(ctx context.Context, box Box, command string, e providers.Exec, l language) error {
	if e.ExitCode != nil && *e.ExitCode == notFound {
		return l.missing()
	}
	out, err := box.Output(
		ctx,
		command,
		providers.OutputQuery{Stream: providers.Stderr, Offset: max(0, e.StderrBytes-maxWords)},
	)
	if err != nil && !isClass(err, providers.NoExec) {
		return err
	}
	how := fmt.Sprintf("was ended by %s", e.Signal)
	if e.Signal == "" && e.ExitCode != nil {
		how = fmt.Sprintf("ended with exit code %d", *e.ExitCode)
	}
	words := strings.TrimSpace(text(string(out.Data), maxWords))
	return providers.NoContext.Errorf(
		"the interpreter %s before it was ready; check env and cwd. Its output: %s",
		how,
		cmp.Or(words, "nothing"),
	)
}

// maxWords is how much of what a context has said is told when it did not start, in bytes.
const maxWords = 2 << 10
