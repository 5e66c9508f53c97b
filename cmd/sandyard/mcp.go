package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
)

const (
	// defaultURL is where an API on this machine listens.
	defaultURL = "http://127.0.0.1:8080"
	urlHelp    = "URL of the API; default SANDYARD_URL, else " + defaultURL
)

func mcpUsage(f *flag.FlagSet) func() {
	return func() {
		fmt.Fprint(f.Output(), `Usage:
  sandyard mcp            serve agents' tools on standard input and output, for clients that start their servers
  sandyard mcp init ...   write the configuration of a client; see sandyard mcp init --help

The tools are those of the API at --url, whose key is in SANDYARD_API_KEY.

Options:
`)
		f.PrintDefaults()
	}
}

func runMCP(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "init" {
		return runMCPInit(args[1:])
	}
	f := flag.NewFlagSet("sandyard mcp", flag.ContinueOnError)
	f.Usage = mcpUsage(f)
	at := f.String("url", "", urlHelp)
	query := url.Values{}
	for name, about := range map[string]string{
		"session":  "name of the conversation, whose sandbox is found again; default: a new one each time",
		"template": "template of the conversation's sandbox",
		"tools":    "sets of tools or tools, with commas between them; default core",
	} {
		f.Func(name, about, func(value string) error { query.Set(name, value); return nil })
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: only init may follow", f.Arg(0))
	}
	base, err := apiURL(*at)
	if err != nil {
		return err
	}
	key := os.Getenv("SANDYARD_API_KEY")
	if key == "" {
		return errors.New("SANDYARD_API_KEY is missing: set it to an API key, which sandyard key NAME makes")
	}
	return newBridge(base+"/mcp?"+query.Encode(), key, os.Stdout).carry(ctx, os.Stdin)
}

// apiURL is the URL of the API without a slash at its end.
func apiURL(given string) (string, error) {
	if given == "" {
		given = os.Getenv("SANDYARD_URL")
	}
	if given == "" {
		given = defaultURL
	}
	u, err := url.Parse(given)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		return "", fmt.Errorf("%q is not the URL of an API; give one such as %s", given, defaultURL)
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}
