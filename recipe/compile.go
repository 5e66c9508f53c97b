package recipe

import (
	"maps"
	"path"
	"strings"

	"sandyard/providers"
)

// compiler goes through a Dockerfile and keeps what holds for the next instruction.
type compiler struct {
	plan    Plan
	context files
	args    variables // of ARG, which do not last
	shell   []string
	user    string
	dir     string
}

func compile(list []instruction, on providers.ImageConfig, context files) (Plan, error) {
	c := &compiler{context: context, args: variables{}, shell: []string{"/bin/sh", "-c"}, user: on.User, dir: on.WorkDir}
	c.plan.Config.Env, c.plan.Labels = maps.Clone(on.Env), map[string]string{}
	if c.plan.Config.Env == nil {
		c.plan.Config.Env = map[string]string{}
	}
	if c.user == "" || strings.HasPrefix(c.user, "1000") { // as our own images say, whose user builds nothing
		c.user = "0:0"
	}
	if c.dir == "" {
		c.dir = "/"
	}
	if _, err := base(list); err != nil {
		return Plan{}, err
	}
	begun := false
	for _, i := range list {
		if i.name == "FROM" {
			if begun {
				return Plan{}, i.errorf("a second FROM: builds of several stages are not possible here; build the image elsewhere and give its name")
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

func (c *compiler) add(i instruction) error {
	if i.rest == "" {
		return i.errorf("%s says nothing", i.name)
	}
	switch i.name {
	case "RUN":
		return c.run(i)
	case "COPY", "ADD":
		return c.copy(i)
	case "ENV":
		return c.pairs(i, c.plan.Config.Env)
	case "LABEL":
		return c.pairs(i, c.plan.Labels)
	case "ARG":
		name, value, _ := strings.Cut(i.rest, "=")
		c.args[name] = c.expand(unquote(value))
	case "WORKDIR":
		return c.workDir(i)
	case "USER":
		c.user = c.expand(i.rest)
	case "SHELL":
		if c.shell = i.argv(nil); len(c.shell) < 1 || !strings.HasPrefix(i.rest, "[") {
			return i.errorf("SHELL takes a JSON list")
		}
	case "CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "VOLUME", "MAINTAINER":
		// Of no meaning to a sandbox, whose first process is its guest; the template says what starts and listens.
	default:
		return i.errorf("%s is not possible here", i.name)
	}
	return nil
}

// expand knows what ENV and ARG have set; ENV wins.
func (c *compiler) expand(s string) string {
	all := variables(maps.Clone(c.args))
	maps.Copy(all, c.plan.Config.Env)
	return all.expand(s)
}

func (c *compiler) step(i instruction, s providers.Step) {
	s.Text, s.Env, s.Dir, s.User = i.String(), maps.Clone(c.plan.Config.Env), c.dir, c.user
	for name, value := range c.args {
		if _, set := s.Env[name]; !set {
			s.Env[name] = value
		}
	}
	c.plan.Steps = append(c.plan.Steps, s)
}

func (c *compiler) run(i instruction) error {
	if strings.HasPrefix(i.rest, "--") {
		return i.errorf("RUN takes no options here, such as --mount")
	}
	if strings.HasPrefix(i.rest, "<<") {
		return i.errorf("RUN takes no here-document; join the lines with && or send a script among the files")
	}
	argv := i.argv(c.shell)
	if len(argv) == 0 || argv[0] == "" {
		return i.errorf("RUN names no program")
	}
	c.step(i, providers.Step{Argv: argv})
	return nil
}

// pairs reads NAME=VALUE … or the old form NAME VALUE.
func (c *compiler) pairs(i instruction, into map[string]string) error {
	words, err := i.words()
	if err != nil {
		return err
	}
	if !strings.Contains(words[0], "=") {
		name, value, _ := strings.Cut(i.rest, " ")
		into[name] = c.expand(unquote(strings.TrimSpace(value)))
		return c.checkNames(i, into)
	}
	set := map[string]string{}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return i.errorf("%q is not NAME=VALUE", w)
		}
		set[name] = c.expand(value) // with what held before this instruction
	}
	maps.Copy(into, set)
	return c.checkNames(i, into)
}

func (c *compiler) checkNames(i instruction, pairs map[string]string) error {
	for name := range pairs {
		if i.name == "LABEL" && strings.HasPrefix(name, "sandyard.") {
			return i.errorf("labels that begin with sandyard. are the platform's")
		}
	}
	return nil
}

func (c *compiler) workDir(i instruction) error {
	dir := c.expand(unquote(i.rest))
	if !path.IsAbs(dir) {
		dir = path.Join(c.dir, dir)
	}
	c.dir = path.Clean(dir)
	made, err := directory(c.dir)
	if err != nil {
		return i.errorf("%v", err)
	}
	c.step(i, providers.Step{Files: made})
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
	for n := range words {
		words[n] = c.expand(words[n])
	}
	last := len(words) - 1
	to := words[last]
	if !path.IsAbs(to) {
		to = strings.TrimSuffix(c.dir, "/") + "/" + to
	}
	unpack, err := c.context.pick(words[:last], to, own)
	if err != nil {
		return i.errorf("%v", err)
	}
	c.step(i, providers.Step{Files: unpack})
	return nil
}
