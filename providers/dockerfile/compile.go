package dockerfile

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"sandyard/providers"
)

// compiler goes through a Dockerfile and keeps what holds for the next instruction.
type compiler struct {
	plan    Plan
	context *files
	scope   *scope
	labels  pairs
	env     map[string]string // of the next step; nil = it has changed
	shell   []string
	user    string
	dir     string
}

func newCompiler(on providers.ImageConfig, outer pairs, escape rune, context *files) *compiler {
	both := newRoom()
	env, args := newPairs(on.Env, both), newPairs(nil, both) // ARG does not last
	c := &compiler{
		context: context, scope: newScope(env, args, outer, escape), labels: newPairs(nil, newRoom()),
		shell: []string{"/bin/sh", "-c"}, user: on.User, dir: on.WorkDir,
	}
	c.plan.Config.Env, c.plan.Labels = env.of, c.labels.of
	if c.user == "" || strings.HasPrefix(c.user, "1000") { // as our own images say, whose user builds nothing
		c.user = "0:0"
	}
	if c.dir == "" {
		c.dir = "/"
	}
	return c
}

func compile(d document, on providers.ImageConfig, context *files) (Plan, error) {
	_, outer, list, err := d.base()
	if err != nil {
		return Plan{}, err
	}
	if providers.Reserved(on.WorkDir) {
		return Plan{}, &Error{Message: "the base image's work directory is below /proc, /sys, /dev or " +
			providers.GuestDir + "; use another base image"}
	}
	c := newCompiler(on, outer, d.escape, context)
	for _, i := range list {
		if err := c.add(i); err != nil {
			return Plan{}, err
		}
	}
	c.plan.Config.WorkDir, c.plan.Config.User = c.dir, c.user
	return c.plan, nil
}

func (c *compiler) add(i instruction) error {
	switch cmd := i.command.(type) {
	case *instructions.Stage:
		return i.errorf(
			"a second FROM: multi-stage builds are not supported; build the image elsewhere and use its name",
		)
	case *instructions.RunCommand:
		return c.run(i, cmd)
	case *instructions.CopyCommand:
		return c.copy(i, cmd, &cmd.SourcesAndDest, &cmd.Chown, &cmd.Chmod)
	case *instructions.AddCommand:
		return c.copy(i, cmd, &cmd.SourcesAndDest, &cmd.Chown, &cmd.Chmod)
	case *instructions.ArgCommand:
		c.env = nil
		return c.scope.arg(i, cmd)
	case *instructions.ShellCommand:
		if c.shell = cmd.Shell; len(c.shell) > maxShell {
			return i.errorf("SHELL takes a JSON list of at most %d words", maxShell)
		}
		return nil
	}
	if err := c.expand(i, i.command); err != nil { // with what held before this instruction
		return err
	}
	switch cmd := i.command.(type) {
	case *instructions.EnvCommand:
		return c.pairs(i, cmd.Env, c.scope.env)
	case *instructions.LabelCommand:
		return c.pairs(i, cmd.Labels, c.labels)
	case *instructions.WorkdirCommand:
		return c.workDir(i, cmd.Path)
	case *instructions.UserCommand:
		c.user = cmd.User
	case *instructions.VolumeCommand:
		return c.volume(i, cmd.Volumes)
	}
	return nil
}

// expand replaces the variables of a command.
func (c *compiler) expand(i instruction, command any) error {
	if e, ok := command.(instructions.SupportsSingleWordExpansion); ok {
		if err := e.Expand(func(text string) (string, error) { return c.scope.expand(i, text) }); err != nil {
			return err
		}
	}
	if e, ok := command.(instructions.SupportsSingleWordExpansionRaw); ok {
		return e.ExpandRaw(func(text string) (string, error) { return c.scope.expandRaw(i, text) })
	}
	return nil
}

func (c *compiler) step(i instruction, s providers.Step) error {
	if len(c.plan.Steps) >= maxSteps {
		return i.errorf("the Dockerfile has more than %d steps; "+
			"join lines of RUN with &&, and copy directories in place of files", maxSteps)
	}
	if c.env == nil {
		c.env = maps.Clone(c.scope.args.of)
		maps.Copy(c.env, c.scope.env.of)
	}
	s.Text, s.Env, s.Dir, s.User = i.text, c.env, c.dir, c.user
	c.plan.Steps = append(c.plan.Steps, s)
	return nil
}

// runFile runs a here-document that names its interpreter.
const runFile = `f=$(mktemp) && trap 'rm -f "$f"' EXIT && printf %s "$0" >"$f" && chmod 700 "$f" && "$f"`

func (c *compiler) run(i instruction, cmd *instructions.RunCommand) error {
	argv := cmd.CmdLine
	if len(cmd.Files) > 0 {
		argv = []string{withDocuments(argv[0], cmd.Files)}
	}
	switch {
	case len(argv) == 0 || argv[0] == "":
		return i.errorf("RUN names no program")
	case len(argv[0]) > maxScript:
		return i.errorf("RUN is longer than %d KiB; send a script with the files", maxScript>>10)
	case len(cmd.Files) > 0 && strings.HasPrefix(argv[0], "#!"):
		argv = []string{"/bin/sh", "-c", runFile, argv[0]}
	case cmd.PrependShell:
		argv = append(slices.Clone(c.shell), argv...)
	}
	return c.step(i, providers.Step{Argv: argv})
}

// withDocuments is what the shell runs: of a line that is one here-document its content, else the line and what
// follows.
func withDocuments(line string, documents []instructions.ShellInlineFile) string {
	if first := documents[0]; parser.MustParseHeredoc(line) != nil {
		if first.Chomp {
			return parser.ChompHeredocContent(first.Data)
		}
		return first.Data
	}
	var all strings.Builder
	all.WriteString(line)
	for _, d := range documents {
		all.WriteString("\n" + d.Data + d.Name)
	}
	return all.String()
}

// pairs sets variables or labels.
func (c *compiler) pairs(i instruction, list instructions.KeyValuePairs, into pairs) error {
	c.env = nil
	for _, p := range list {
		if i.name == "LABEL" && strings.HasPrefix(p.Key, "sandyard.") {
			return i.errorf("labels that begin with sandyard. are reserved for the platform")
		}
		if p.Key == "" || strings.Contains(p.Key, "=") {
			return i.errorf("%s sets a name that is empty or has a =", i.name)
		}
		if err := c.scope.set(i, into, p.Key, p.Value); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) workDir(i instruction, dir string) error {
	if !path.IsAbs(dir) {
		dir = path.Join(c.dir, dir)
	}
	if c.dir = path.Clean(dir); len(c.dir) > maxPath {
		return i.errorf("the work directory's path is longer than %d bytes", maxPath)
	}
	if providers.Reserved(c.dir) {
		return reservedPath(i)
	}
	made, err := c.context.directory(c.dir)
	if err != nil {
		return i.errorf("%v", err)
	}
	return c.step(i, providers.Step{Files: made})
}

// reservedPath refuses a path by what the Dockerfile says, without what its variables hold.
func reservedPath(i instruction) error {
	return i.errorf(
		"%.200q has a path below /proc, /sys, /dev or %s, which are reserved for the kernel and the platform; "+
			"choose another path",
		i.text,
		providers.GuestDir,
	)
}

// volume only checks: nothing lasts in a sandbox, and what an image keeps in a directory is there without a volume.
func (c *compiler) volume(i instruction, dirs []string) error {
	for _, dir := range dirs {
		if providers.Reserved(path.Join("/", c.dir, dir)) || providers.Reserved(dir) {
			return reservedPath(i)
		}
	}
	return nil
}

// copy carries out COPY and, for what lies in the context, ADD. Errors quote the sources as they were written.
func (c *compiler) copy(i instruction, cmd any, what *instructions.SourcesAndDest, chown, chmod *string) error {
	var sources []source
	for _, text := range what.SourcePaths {
		sources = append(sources, source{text: text})
	}
	if err := c.expand(i, cmd); err != nil {
		return err
	}
	for n, name := range what.SourcePaths {
		sources[n].path = name
	}
	for _, d := range what.SourceContents {
		if d.Path == "." || d.Path == ".." || strings.Contains(d.Path, "/") {
			return i.errorf("the here-document %.200q has no name of a file", d.Path)
		}
		sources = append(sources, source{path: d.Path, content: &d.Data})
	}
	own, err := newOwnership(*chown, *chmod)
	if err != nil {
		return i.errorf("%v", err)
	}
	to := what.DestPath
	if !path.IsAbs(to) {
		to = strings.TrimSuffix(c.dir, "/") + "/" + to
	}
	if len(to) > maxPath {
		return i.errorf("the path of the destination is longer than %d bytes", maxPath)
	}
	if providers.Reserved(to) {
		return reservedPath(i)
	}
	unpack, err := c.context.pick(sources, to, own)
	if err != nil {
		return i.errorf("%v", err)
	}
	return c.step(i, providers.Step{Files: unpack})
}
