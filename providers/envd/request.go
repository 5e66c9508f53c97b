package envd

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"sandyard/guest/envdpb/process"
	"sandyard/guest/protocol"
	"sandyard/providers"

	"connectrpc.com/connect"
)

// DefaultMaxOutput is what is kept of each stream of a command that does not say, in bytes.
const DefaultMaxOutput = 1 << 20

// startRequest turns a command into envd's request, or says what is wrong with it.
func (s *Sandbox) startRequest(cmd providers.Command) (*connect.Request[process.StartRequest], error) {
	if err := checkCommand(cmd, s.o.User); err != nil {
		return nil, err
	}
	stdin := len(cmd.Stdin) > 0
	config := &process.ProcessConfig{Envs: cmd.Env}
	if dir := cmp.Or(cmd.Dir, s.o.WorkDir); dir != "" {
		config.Cwd = &dir
	}
	req := connect.NewRequest(&process.StartRequest{Process: config, Stdin: &stdin})
	req.Header().Set(protocol.ExecHeader, cmd.Name)
	req.Header().Set(protocol.MaxOutputHeader, strconv.FormatInt(maxOutput(cmd), 10))
	if cmd.Merge {
		req.Header().Set(protocol.MergeHeader, "1")
	}
	if cmd.Shell != "" {
		config.Args = []string{cmd.Shell}
		req.Header().Set(protocol.ShellHeader, "1")
	} else {
		config.Cmd, config.Args = cmd.Argv[0], cmd.Argv[1:]
	}
	return req, nil
}

func maxOutput(cmd providers.Command) int64 {
	if cmd.MaxOutput <= 0 {
		return DefaultMaxOutput
	}
	return cmd.MaxOutput
}

func checkCommand(cmd providers.Command, user string) error {
	switch {
	case !protocol.ValidName(cmd.Name):
		return providers.Invalid.Errorf("the command's name %q is not valid", cmd.Name)
	case (cmd.Shell == "") == (len(cmd.Argv) == 0):
		return providers.Invalid.Errorf("give either a shell line or an argument list")
	case cmd.User != "" && cmd.User != user:
		return providers.NoUser.Errorf("user '%s' is not available; commands in this sandbox run as '%s'", cmd.User, user)
	}
	for _, text := range append([]string{cmd.Shell, cmd.Dir}, cmd.Argv...) {
		if !plain(text) {
			return providers.Invalid.Errorf("the command holds a NUL byte or is not UTF-8")
		}
	}
	for k, v := range cmd.Env {
		if k == "" || strings.Contains(k, "=") || !plain(k) || !plain(v) {
			return providers.Invalid.Errorf("the environment variable %q is not valid", k)
		}
	}
	return nil
}

// plain says whether text can be an argument: the protocol carries UTF-8 and the kernel no NUL.
func plain(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }
