package providertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"sandyard/providers"
	"sandyard/providers/providertest/fixture"
)

// guestCallsThrough are those calls of guests on what is in a directory that a provider's interface does not have:
// E2B's clients make them through the gateway.
func guestCallsThrough(r fixture.Room, dir string) map[string]func(context.Context) (string, error) {
	if _, ok := r.Sandbox.(guestDialer); !ok {
		return nil
	}
	return map[string]func(context.Context) (string, error){
		"compose": func(ctx context.Context) (string, error) {
			return askGuest(
				ctx,
				r,
				"/files/compose",
				map[string]any{"source_paths": []string{dir + "/f2", dir + "/saved"}, "destination": dir + "/composed"},
			)
		},
		"compose from": func(ctx context.Context) (string, error) {
			told, err := askGuest(
				ctx,
				r,
				"/files/compose",
				map[string]any{"source_paths": []string{dir + "/f"}, "destination": "composed"},
			)
			if err != nil {
				return told, err
			}
			text, err := r.ReadFile(ctx, "composed", 1000)
			if _, put := r.WriteFile(ctx, dir+"/f", []byte("inside"), 0); put != nil && !harmless(put) {
				err = put
			}
			return told + string(text), err
		},
		"poll": func(ctx context.Context) (string, error) { return pollAWhile(ctx, r, dir) },
	}
}

// pollAWhile asks a watcher for what it has seen, for as long as it takes to write a file a few times.
func pollAWhile(ctx context.Context, r fixture.Room, dir string) (string, error) {
	const calls = "/filesystem.Filesystem/"
	text, err := askGuest(ctx, r, calls+"CreateWatcher", map[string]any{"path": dir, "includeEntry": true})
	if err != nil {
		return text, err
	}
	var made struct {
		WatcherID string `json:"watcherId"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		return text, err
	}
	watcher := map[string]any{"watcherId": made.WatcherID}
	var told strings.Builder
	for range 5 {
		if _, err := r.WriteFile(ctx, dir+"/polled", []byte("n"), 0); err != nil && !harmless(err) {
			return told.String(), err
		}
		events, err := askGuest(ctx, r, calls+"GetWatcherEvents", watcher)
		told.WriteString(events)
		if err != nil {
			break // the directory has gone from its name
		}
	}
	_, err = askGuest(ctx, r, calls+"RemoveWatcher", watcher)
	return told.String(), err
}

// askGuest makes a call as an outsider who was let in. A refusal of a path is an error that a path may have.
func askGuest(ctx context.Context, r fixture.Room, call string, body any) (string, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return r.Sandbox.(guestDialer).DialGuest(ctx, "")
	}}
	defer transport.CloseIdleConnections()
	text, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest"+call, strings.NewReader(string(text)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	told, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", call, answer.StatusCode, told)
		if reason := answer.Header.Get("Sandyard-Reason"); reason == "invalid_path" || reason == "file_not_found" ||
			reason == "not_a_directory" ||
			reason == "not_a_file" {
			err = providers.InvalidPath.Errorf("%w", err)
		}
	}
	return string(told), err
}
