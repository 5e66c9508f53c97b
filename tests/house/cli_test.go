package house

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sandyard/dev/testenv"
)

// commandLine is the page that lists the commands and options of sandyard.
const commandLine = "docs/cli.md"

// command is a command of sandyard, as its help describes it.
type command struct {
	usage   string            // without the options
	about   string            // one line
	options map[string]string // what each means
	group   bool              // it needs the name of another command behind it
}

// TestCommandLinePageIsTheCommandLine compares docs/cli.md with the help of sandyard: the commands with their
// arguments, and the options of each.
func TestCommandLinePageIsTheCommandLine(t *testing.T) {
	t.Parallel()
	commands, options := map[string]string{}, map[string]string{}
	for path, c := range commandsOf(t) {
		if !c.group {
			commands[c.usage] = c.about
		}
		for name, about := range c.options {
			options[path+" --"+name] = about
		}
	}
	compareRows(t, "| command | does |", commands)
	compareRows(t, "| option of | option | meaning |", options)
	if len(commands) < 15 || len(options) < 30 {
		t.Errorf("only %d commands and %d options were found", len(commands), len(options))
	}
}

// builtHelp is what the commands of sandyard say of themselves.
//
//nolint:gochecknoglobals // a build of sandyard is slow
var builtHelp struct {
	once  sync.Once
	known map[string]command
}

// commandsOf builds sandyard and asks for the help of each command, by its path such as "sandyard node drain".
func commandsOf(t *testing.T) map[string]command {
	t.Helper()
	builtHelp.once.Do(func() { builtHelp.known = askForHelp(t) })
	if builtHelp.known == nil {
		t.Fatal("the commands of sandyard are not known; another test says why")
	}
	return builtHelp.known
}

func askForHelp(t *testing.T) map[string]command {
	t.Helper()
	dir := t.TempDir()
	if err := testenv.BuildPrograms(dir, "sandyard"); err != nil {
		t.Fatal(err)
	}
	sandyard := filepath.Join(dir, "sandyard")
	found := map[string]command{}
	var ask func(words []string, about string)
	ask = func(words []string, about string) {
		help := run(t, sandyard, append(slices.Clone(words), "--help")...)
		usage := regexp.MustCompile(`(?m)^Usage:\n  (.*)$`).FindStringSubmatch(help)
		if usage == nil {
			t.Fatalf("%v --help prints no usage:\n%s", words, help)
		}
		c := command{usage: strings.TrimSuffix(usage[1], " [flags]"), about: about, options: map[string]string{}}
		c.group = strings.HasSuffix(c.usage, " COMMAND")
		option := regexp.MustCompile(`(?m)^ +(?:-\w, )?--(\S+)(?: \w+)? {2,}(\S.*)$`)
		for _, o := range option.FindAllStringSubmatch(help, -1) {
			if o[1] != "help" && o[1] != "version" { // every command has them, or is one
				c.options[o[1]] = o[2]
			}
		}
		found[strings.Join(append([]string{"sandyard"}, words...), " ")] = c
		_, below, _ := strings.Cut(help, "\nCommands:\n")
		below, _, _ = strings.Cut(below, "\n\n")
		for _, m := range regexp.MustCompile(`(?m)^  (\S+) +(\S.*)$`).FindAllStringSubmatch(below, -1) {
			ask(append(slices.Clone(words), m[1]), m[2])
		}
	}
	ask(nil, "")
	return found
}

// compareRows holds the rows of a table of the page to what the program prints: the last cell is what the others mean.
func compareRows(t *testing.T, header string, want map[string]string) {
	t.Helper()
	listed := map[string]bool{}
	for _, row := range tableRows(t, commandLine, header) {
		name := strings.NewReplacer("` | `", " ", "`", "").Replace(strings.Join(row[:len(row)-1], " | "))
		listed[name] = true
		if about, ok := want[name]; !ok {
			t.Errorf("%s lists %q, which sandyard does not have", commandLine, name)
		} else if about != row[len(row)-1] {
			t.Errorf("%s says of %s %q, its help says %q", commandLine, name, row[len(row)-1], about)
		}
	}
	for name, about := range want {
		if !listed[name] {
			t.Errorf("%s does not list %q: %s", commandLine, name, about)
		}
	}
}

// run returns what a command prints; asked for help, it must not fail.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, &out)
	}
	return out.String()
}
