package codecontext

import (
	_ "embed"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sandyard/providers"
)

//go:embed drivers/python.py
var pythonDriver string

//go:embed drivers/node.js
var nodeDriver string

//go:embed drivers/bash.sh
var bashDriver string

// The languages.
const (
	Python     = "python"
	JavaScript = "javascript"
	Bash       = "bash"
)

// Languages are those that cells can be written in. A language is also the name of its default context.
func Languages() []string { return []string{Python, JavaScript, Bash} }

// language is how cells of one reach their driver.
type language struct {
	name    string
	program string   // that the sandbox must have
	argv    []string // starts the driver
	driver  string   // what its standard input begins with
	encode  func(Cell) ([]byte, error)
	once    bool // an interrupt must not be repeated: a bash that is just beginning anew would end by it
}

// Each driver's first act is to take descriptors 0 and 3 away from where cells would meet them.
const (
	pythonBoot = `import os, sys
left, source = int(sys.argv[1]), b""
while left > len(source):
    source += os.read(0, left - len(source)) or sys.exit(1)
exec(compile(source, "sandyard", "exec"), {"__name__": "sandyard"})`

	nodeBoot = `exec 8<&0 9>&3 </dev/null 3>&-
command -v node >/dev/null || exit 127
exec node --expose-internals -e '
const source = Buffer.alloc(Number(process.argv[1]));
for (let n = 0; n < source.length;) {
  const more = require("fs").readSync(8, source, n, source.length - n, null);
  if (more === 0) process.exit(1);
  n += more;
}
require("vm").runInThisContext("(function (require, load) {" + source + "\n})", { filename: "sandyard" })(require, (s) => import(s));
' "$0"`

	bashBoot = `exec 8<&0 9>&3 </dev/null 3>&-; IFS= read -r -d '' -u 8 __sandyard_code; eval "$__sandyard_code"`
)

func languageOf(name string) (language, bool) {
	l := language{name: name, encode: jsonLine}
	switch name {
	case Python:
		l.program, l.driver = "python3", pythonDriver
		l.argv = []string{"python3", "-c", pythonBoot, strconv.Itoa(len(l.driver))}
	case JavaScript:
		l.program, l.driver = "node", nodeDriver
		l.argv = []string{"sh", "-c", nodeBoot, strconv.Itoa(len(l.driver))}
	case Bash:
		l.program, l.driver, l.encode, l.once = "bash", bashDriver+"\x00", bashFields, true
		l.argv = []string{"bash", "-c", bashBoot, "bash"}
	}
	return l, l.program != ""
}

func (c Cell) language() (language, error) {
	l, ok := languageOf(c.Language)
	if !ok {
		return l, providers.Invalid.Errorf("there is no language %q; use one of %v", c.Language, Languages())
	}
	return l, nil
}

func (l language) missing() error {
	return providers.NoCommand.Errorf(
		"this sandbox has no %s, which runs %s; create one from a template that has it",
		l.program,
		l.name,
	)
}

// jsonLine is a cell as a line of JSON.
func jsonLine(c Cell) ([]byte, error) {
	b, err := json.Marshal(struct {
		ID   string            `json:"id"`
		Code string            `json:"code"`
		Dir  string            `json:"cwd,omitempty"`
		Env  map[string]string `json:"env,omitempty"`
		Join bool              `json:"merge,omitempty"`
	}{c.ID, c.Code, c.Dir, c.Env, c.Merge})
	return append(b, '\n'), err
}

// bashFields is a cell as values that end with NUL.
func bashFields(c Cell) ([]byte, error) {
	fields := []string{c.ID, c.Dir, c.Code, strconv.Itoa(len(c.Env))}
	for name, value := range c.Env {
		fields = append(fields, name+"="+value)
	}
	slices.Sort(fields[4:])
	return []byte(strings.Join(fields, "\x00") + "\x00"), nil
}

// contextName is what a context may be called.
var contextName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// ValidContext says whether a context may be called so: up to 32 small letters, digits, "_" and "-".
func ValidContext(name string) bool { return contextName.MatchString(name) }
