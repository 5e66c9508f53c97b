package codecontext

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"sandyard/providers"
)

const (
	// prefix begins the names of the commands that are contexts: prefix, context, language and the cell that it was
	// started for, with dots between.
	prefix = "code."
	// maxKept bounds what a context keeps of each of its outputs, in bytes: also all results of a cell.
	maxKept = 5 << 20
	// maxEnded is how many contexts that have ended are remembered, for cells whose worker died with them.
	maxEnded = 16
	// feedWait is how long a driver may take to read a cell.
	feedWait = 30 * time.Second
)

// Context is an interpreter that runs.
type Context struct {
	Name     string `json:"name"`
	Language string `json:"language" enum:"python,javascript,bash"`
	Pid      int    `json:"pid" doc:"Inside the sandbox"`
	AgeMS    int64  `json:"age_ms" doc:"Time since its start"`
}

// IsContext says whether a background command of this name is a context.
func IsContext(command string) bool { return strings.HasPrefix(command, prefix) }

// of returns the context's name, and its language.
func partsOf(command string) (name, lang string) {
	parts := strings.SplitN(strings.TrimPrefix(command, prefix), ".", 3)
	if !IsContext(command) || len(parts) < 3 {
		return "", ""
	}
	return parts[0], parts[1]
}

// List returns the contexts that run, oldest first.
func List(ctx context.Context, box Box) ([]Context, error) {
	all, err := box.Execs(ctx)
	list := []Context{}
	for _, e := range all {
		if name, lang := partsOf(e.ID); e.Running && name != "" {
			list = append(list, Context{Name: name, Language: lang, Pid: e.Pid, AgeMS: e.AgeMS})
		}
	}
	return list, err
}

// Delete ends a context with all its processes. One that does not run is a success.
func Delete(ctx context.Context, box Box, name string) error {
	all, err := box.Execs(ctx)
	for _, e := range all {
		if is, _ := partsOf(e.ID); is == name && e.Running {
			err = errors.Join(err, box.Kill(ctx, e.ID))
		}
	}
	return err
}

// enter gives the cell to its context, which it starts where none runs, and returns the command that the context is.
func enter(ctx context.Context, box Box, c Cell, l language) (string, providers.Fed, error) {
	input, err := l.encode(c)
	if err != nil {
		return "", providers.Fed{}, err
	}
	in := providers.Input{ID: c.ID, Data: input, Wait: feedWait, Fresh: true}
	all, err := box.Execs(ctx)
	if err != nil {
		return "", providers.Fed{}, err
	}
	mine := candidates(all, c)
	for _, e := range mine {
		if _, lang := partsOf(e.ID); lang != l.name && e.Running {
			return "", providers.Fed{}, foreign(c.context(), lang, l.name)
		}
		fed, err := box.Feed(ctx, e.ID, in)
		if err == nil || !isClass(err, providers.ExecEnded, providers.NoExec) {
			return e.ID, fed, err
		}
	}
	name, err := start(ctx, box, c, l)
	if err != nil {
		return "", providers.Fed{}, err
	}
	forgetOld(ctx, box, all)
	fed, err := box.Feed(ctx, name, in)
	if isClass(err, providers.ExecEnded) { // it has died of itself: follow finds out why
		err = nil
	}
	return name, fed, err
}

// foreign says that a context runs another language.
func foreign(name, runs, wanted string) error {
	return providers.Invalid.Errorf(
		"context %q runs %s; choose another name for %s, or delete it first",
		name,
		runs,
		wanted,
	)
}

func (c Cell) context() string { return cmp.Or(c.Context, c.Language) }

// candidates are the contexts that may have been given the cell, or can be: those that have ended first, because one
// that runs takes it in any case.
func candidates(all []providers.Exec, c Cell) []providers.Exec {
	var ended, running []providers.Exec
	for _, e := range all {
		name, _ := partsOf(e.ID)
		switch {
		case name != c.context():
		case e.Running:
			running = append(running, e)
		case c.Again:
			ended = append(ended, e)
		}
	}
	slices.Reverse(ended)
	return append(ended, running...)
}

// start starts the context under a name that belongs to the cell, so that another attempt finds the same.
func start(ctx context.Context, box Box, c Cell, l language) (string, error) {
	cmd := command(c, l)
	return cmd.Name, launch(ctx, box, cmd, l)
}

// command is the context that is started for a cell.
func command(c Cell, l language) providers.Command {
	return providers.Command{
		Name: prefix + c.context() + "." + l.name + "." + c.ID,
		Argv: l.argv, Env: c.ContextEnv, Stdin: []byte(l.driver), StdinOpen: true, Report: true, MaxOutput: maxKept,
	}
}

func launch(ctx context.Context, box Box, cmd providers.Command, l language) error {
	_, err := box.Launch(ctx, cmd)
	if isClass(err, providers.NoCommand) {
		err = l.missing()
	}
	return err
}

// forgetOld drops the oldest of the contexts that have ended.
func forgetOld(ctx context.Context, box Box, all []providers.Exec) {
	ended := slices.DeleteFunc(slices.Clone(all), func(e providers.Exec) bool { return e.Running || !IsContext(e.ID) })
	for len(ended) > maxEnded {
		_ = box.Forget(ctx, ended[0].ID) // the guest bounds them too
		ended = ended[1:]
	}
}
