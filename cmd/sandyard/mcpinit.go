package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// mcpClient is a client whose configuration sandyard mcp init writes. None of them holds the key: each reads it from the
// environment or asks for it.
type mcpClient struct {
	name, file string // file is below the directory, or below the home directory where it begins with ~/
	servers    string // the member that holds the servers
	entry      func(url string) map[string]any
	input      map[string]any // what the client asks its user for
}

const keyVariable = "SANDYARD_API_KEY"

func mcpClients() []mcpClient {
	headers := func(key string) map[string]any { return map[string]any{"Authorization": "Bearer " + key} }
	return []mcpClient{
		{name: "claude", file: ".mcp.json", servers: "mcpServers", entry: func(url string) map[string]any {
			return map[string]any{"type": "http", "url": url, "headers": headers("${" + keyVariable + "}")}
		}},
		{name: "cursor", file: ".cursor/mcp.json", servers: "mcpServers", entry: func(url string) map[string]any {
			return map[string]any{"url": url, "headers": headers("${env:" + keyVariable + "}")}
		}},
		{name: "codex", file: "~/.codex/config.toml"},
		{
			name: "vscode", file: ".vscode/mcp.json", servers: "servers", entry: func(url string) map[string]any {
				return map[string]any{"type": "http", "url": url, "headers": headers("${input:sandyard-key}")}
			},
			input: map[string]any{"type": "promptString", "id": "sandyard-key", "description": "API key of Sandyard", "password": true},
		},
	}
}

func mcpInitCommand() *cobra.Command {
	var at string
	var force bool
	names := make([]string, 0, len(mcpClients()))
	for _, client := range mcpClients() {
		names = append(names, client.name)
	}
	c := &cobra.Command{
		Use: "init CLIENT", Short: "add the server to the configuration of " + strings.Join(names, ", "), ValidArgs: names,
		Long: `Add the server to the configuration of claude, cursor, codex or vscode.
The files are .mcp.json, .cursor/mcp.json and .vscode/mcp.json of this directory, and .codex/config.toml of the home
directory ($CODEX_HOME). The key is not written: export it as SANDYARD_API_KEY. vscode asks for it.`,
		RunE: func(_ *cobra.Command, args []string) error {
			base, err := apiURL(at)
			if err != nil {
				return err
			}
			i := slices.Index(names, strings.Join(args, " "))
			if i < 0 {
				return fmt.Errorf("name one client: %s", strings.Join(names, ", "))
			}
			return mcpClients()[i].write(base+"/mcp", force)
		},
	}
	c.Flags().StringVar(&at, "url", "", urlHelp)
	c.Flags().BoolVar(&force, "force", false, "replace an entry sandyard that is different")
	return c
}

func (c mcpClient) write(url string, force bool) error {
	path, err := c.path()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	edit := c.editJSON
	if c.servers == "" {
		edit = editTOML
	}
	text, err := edit(old, url, force)
	if err != nil {
		return fmt.Errorf("%s was left as it is: %w", path, err)
	}
	if bytes.Equal(text, old) {
		fmt.Printf("%s has the server already.\n", path)
		return nil
	}
	if err := replaceFile(path, text); err != nil {
		return err
	}
	fmt.Printf("Added %s to %s.\n", url, path)
	if c.input == nil {
		fmt.Printf("Export the key before you start the client: export %s=sy_...\n", keyVariable)
	}
	return nil
}

func (c mcpClient) path() (string, error) {
	rest, home := strings.CutPrefix(c.file, "~/.codex/")
	if !home {
		return c.file, nil
	}
	if dir := os.Getenv("CODEX_HOME"); dir != "" {
		return filepath.Join(dir, rest), nil
	}
	dir, err := os.UserHomeDir()
	return filepath.Join(dir, ".codex", rest), err
}

// editJSON adds the server to a file, of which everything else stays.
func (c mcpClient) editJSON(old []byte, url string, force bool) ([]byte, error) {
	all := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(old)) > 0 {
		if err := json.Unmarshal(old, &all); err != nil {
			snippet, _ := json.Marshal(map[string]any{c.servers: map[string]any{"sandyard": c.entry(url)}}) // of strings
			return nil, fmt.Errorf("it is not plain JSON (%w); add this by hand: %s", err, snippet)
		}
	}
	servers := map[string]json.RawMessage{}
	if raw := all[c.servers]; raw != nil {
		if err := json.Unmarshal(raw, &servers); err != nil {
			return nil, fmt.Errorf("its %s is not an object: %w", c.servers, err)
		}
	}
	wanted, err := json.Marshal(c.entry(url))
	if err != nil {
		return nil, err
	}
	if found := servers["sandyard"]; found != nil && same(found, wanted) {
		return old, nil
	} else if found != nil && !force {
		return nil, errors.New("it has another entry sandyard; replace it with --force")
	}
	servers["sandyard"] = wanted
	if all[c.servers], err = json.Marshal(servers); err != nil {
		return nil, err
	}
	if err := c.addInput(all); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

// addInput adds what the client is to ask for, where it does not yet.
func (c mcpClient) addInput(all map[string]json.RawMessage) error {
	if c.input == nil {
		return nil
	}
	var inputs []json.RawMessage
	if raw := all["inputs"]; raw != nil {
		if err := json.Unmarshal(raw, &inputs); err != nil {
			return fmt.Errorf("its inputs are no list: %w", err)
		}
	}
	if slices.ContainsFunc(inputs, func(raw json.RawMessage) bool {
		var input struct{ ID string }
		return json.Unmarshal(raw, &input) == nil && input.ID == c.input["id"]
	}) {
		return nil
	}
	raw, err := json.Marshal(c.input)
	if err == nil {
		all["inputs"], err = json.Marshal(append(inputs, raw))
	}
	return err
}

func same(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// editTOML adds the server at the end of codex's file.
func editTOML(old []byte, url string, _ bool) ([]byte, error) {
	table := fmt.Sprintf("[mcp_servers.sandyard]\nurl = %q\nbearer_token_env_var = %q\n", url, keyVariable)
	if bytes.Contains(old, []byte(table)) {
		return old, nil
	}
	for line := range bytes.Lines(old) {
		if name := bytes.TrimSpace(line); bytes.HasPrefix(name, []byte("[mcp_servers.sandyard]")) || bytes.HasPrefix(name, []byte(`[mcp_servers."sandyard"]`)) {
			return nil, fmt.Errorf("it has another table mcp_servers.sandyard; put this in its place:\n%s", table)
		}
	}
	if len(old) > 0 {
		table = "\n" + table
		if !bytes.HasSuffix(old, []byte("\n")) {
			table = "\n" + table
		}
	}
	return append(slices.Clone(old), table...), nil
}

// replaceFile writes a file so that it is the old or the new one at any time.
func replaceFile(path string, text []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // the client's directory, as the client makes it
		return err
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	part, err := os.CreateTemp(filepath.Dir(path), ".sandyard-*")
	if err != nil {
		return err
	}
	_, err = part.Write(text)
	err = errors.Join(err, part.Chmod(mode), part.Sync(), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		_ = os.Remove(part.Name()) // it may be gone already
	}
	return err
}
