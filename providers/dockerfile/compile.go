package dockerfile

import (
	"maps"
	"path"
	"strings"

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

func newCompiler(on providers.ImageConfig, context *files) *compiler {
	both := newRoom()
	env, args := newPairs(on.Env, both), newPairs(nil, both) // ARG does not last
	c := &compiler{
		context: context, scope: newScope(env, args), labels: newPairs(nil, newRoom()),
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

func compile(list []instruction, on providers.ImageConfig, context *files) (Plan, error) {
	if _, err := base(list); err != nil {
		return Plan{}, err
	}
	if providers.Reserved(on.WorkDir) {
		return Plan{}, &Error{Message: "the base image's work directory is below /proc, /sys, /dev or " + providers.GuestDir + "; use another base image"}
	}
	c, begun := newCompiler(on, context), false
	for _, i := range list {
		if i.name == "FROM" {
			if begun {
				return Plan{}, i.errorf("a second FROM: multi-stage builds are not supported; build the image elsewhere and use its name")
			}
			begun = true
			continue
		}
		if err := c.add(i); err != nil {
			return Plan{}, err
		}
	}
	c.plan.Config.WorkDir, c.plan.Config.User = c.dir, c.user
	return c.plan, nil
}

func (c *compiler) add(i instruction) (err error) {
	if i.rest == "" {
		return i.errorf("%s is empty", i.name)
	}
	switch i.name {
	case "RUN":
		return c.run(i)
	case "COPY", "ADD":
		return c.copy(i)
	case "ENV":
		return c.pairs(i, c.scope.env)
	case "LABEL":
		return c.pairs(i, c.labels)
	case "ARG":
		c.env = nil
		return c.scope.arg(i)
	case "WORKDIR":
		return c.workDir(i)
	case "USER":
		c.user, err = c.scope.expand(i, i.rest)
		return err
	case "VOLUME":
		return c.volume(i)
	case "SHELL":
		if c.shell = i.argv(nil); len(c.shell) < 1 || len(c.shell) > maxShell || !strings.HasPrefix(i.rest, "[") {
			return i.errorf("SHELL takes a JSON list of at most %d words", maxShell)
		}
	case "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "MAINTAINER":
		// Of no meaning to a sandbox, whose first process is its guest; the template says what starts and listens.
	default:
		return i.errorf("%s is not supported", i.name)
	}
	return nil
}

func (c *compiler) step(i instruction, s providers.Step) error {
	if len(c.plan.Steps) >= maxSteps {
		return i.errorf("the Dockerfile has more than %d steps; join lines of RUN with &&, and copy directories in place of files", maxSteps)
	}
	if c.env == nil {
		c.env = maps.Clone(c.scope.args.of)
		maps.Copy(c.env, c.scope.env.of)
	}
	s.Text, s.Env, s.Dir, s.User = i.String(), c.env, c.dir, c.user
	c.plan.Steps = append(c.plan.Steps, s)
	return nil
}

func (c *compiler) run(i instruction) error {
	if strings.HasPrefix(i.rest, "--") {
		return i.errorf("options of RUN, such as --mount, are not supported")
	}
	if strings.HasPrefix(i.rest, "<<") {
		return i.errorf("here-documents in RUN are not supported; join the lines with && or send a script with the files")
	}
	argv := i.argv(c.shell)
	if len(argv) == 0 || argv[0] == "" {
		return i.errorf("RUN names no program")
	}
	return c.step(i, providers.Step{Argv: argv})
}

// pairs reads NAME=VALUE … or the old form NAME VALUE.
func (c *compiler) pairs(i instruction, into pairs) error {
	words, err := i.words()
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return i.errorf("%s takes NAME=VALUE", i.name)
	}
	if !strings.Contains(words[0], "=") {
		name, value, _ := strings.Cut(i.rest, " ")
		words = []string{name + "=" + unquote(strings.TrimSpace(value))}
	}
	for n, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return i.errorf("%q is not NAME=VALUE", w)
		}
		if value, err = c.scope.expand(i, value); err != nil { // with what held before this instruction
			return err
		}
		words[n] = name + "=" + value
	}
	c.env = nil
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		if i.name == "LABEL" && strings.HasPrefix(name, "sandyard.") {
			return i.errorf("labels that begin with sandyard. are reserved for the platform")
		}
		if err := c.scope.set(i, into, name, value); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) workDir(i instruction) error {
	dir, err := c.scope.expand(i, unquote(i.rest))
	if err != nil {
		return err
	}
	if !path.IsAbs(dir) {
		dir = path.Join(c.dir, dir)
	}
	if c.dir = path.Clean(dir); len(c.dir) > maxPath {
		return i.errorf("the work directory's path is longer than %d bytes", maxPath)
	}
	if providers.Reserved(c.dir) {
		return reservedPath(i, i.rest)
	}
	made, err := c.context.directory(c.dir)
	if err != nil {
		return i.errorf("%v", err)
	}
	return c.step(i, providers.Step{Files: made})
}

// reservedPath refuses a path by what the Dockerfile says, without what its variables hold.
func reservedPath(i instruction, text string) error {
	return i.errorf("%s %.200q is below /proc, /sys, /dev or %s, which are reserved for the kernel and the platform; choose another path",
		i.name, text, providers.GuestDir)
}

// volume only checks: nothing lasts in a sandbox, and what an image keeps in a directory is there without a volume.
func (c *compiler) volume(i instruction) error {
	words, err := i.words()
	if err != nil {
		return err
	}
	for _, text := range words {
		dir, err := c.scope.expand(i, text)
		if err != nil {
			return err
		}
		if providers.Reserved(path.Join("/", c.dir, dir)) || providers.Reserved(dir) {
			return reservedPath(i, text)
		}
	}
	return nil
}

// copy reads COPY and, for what lies in the context, ADD.
func (c *compiler) copy(i instruction) error {
	words, err := i.words()
	if err != nil {
		return err
	}
	var own ownership
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		if err := own.option(words[0]); err != nil {
			return i.errorf("%v", err)
		}
		words = words[1:]
	}
	if len(words) < 2 {
		return i.errorf("%s takes sources and a destination", i.name)
	}
	sources := make([]source, len(words))
	for n, text := range words {
		sources[n].text = text
		if sources[n].path, err = c.scope.expand(i, text); err != nil {
			return err
		}
	}
	last := len(words) - 1
	to := sources[last].path
	if !path.IsAbs(to) {
		to = strings.TrimSuffix(c.dir, "/") + "/" + to
	}
	if len(to) > maxPath {
		return i.errorf("the path of the destination is longer than %d bytes", maxPath)
	}
	if providers.Reserved(to) {
		return reservedPath(i, sources[last].text)
	}
	unpack, err := c.context.pick(sources[:last], to, own)
	if err != nil {
		return i.errorf("%v", err)
	}
	return c.step(i, providers.Step{Files: unpack})
}
