package e2e_test

import (
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDevOnceAndAgain(t *testing.T) {
	t.Parallel()
	home := serverDir(t)
	e := newEngine(t, "", image)
	t.Cleanup(func() { e.clear(t) })
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "SANDYARD_FLEET=" + e.fleet}
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		env = append(env, "DOCKER_HOST="+host)
	}

	once := startProcess(t, home, env, "sandyard", "dev", "--once", "--addr", "127.0.0.1:0")
	once.Await(2 * time.Minute)
	if said := once.Stdout.String(); once.Err() != nil || !strings.Contains(said, "Hello from Python") {
		t.Fatalf("sandyard dev --once ended with %v and printed:\n%s", once.Err(), said)
	}
	first := strings.Fields(once.Line(&once.Stdout, "POST /v1/run: "))[0]
	nothingLeft(t, e, home)

	told := freeAddress(t)
	again := startProcess(t, home, append(env, "LISTEN_ADDR="+told, "EDGE_ADDR=127.0.0.1:0", "EDGE_DOMAIN=edge.example"), "sandyard", "dev")
	url := strings.Fields(again.Line(&again.Stdout, "API        "))[0]
	if url != "http://"+told+"/v1" {
		t.Errorf("told to listen at %s, it does at %s", told, url)
	}
	c := &caller{
		t: t, url: func() string { return strings.TrimSuffix(url, "/v1") }, key: again.Line(&again.Stdout, "API key    "),
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute},
	}
	key, err := os.ReadFile(filepath.Join(home, ".sandyard", "key"))
	if err != nil || strings.TrimSpace(string(key)) != c.key {
		t.Errorf("the key of the first start is %q, of the second %q, %v", key, c.key, err)
	}
	if j := c.job(first); j.State != "succeeded" || !strings.Contains(j.Stdout, "Hello from Python") {
		t.Errorf("the first start's job: %s", j)
	}
	c.created(object{}) // stays until the end
	keys := startProcess(t, home, env, "sandyard", "key")
	keys.Await(time.Minute)
	if keys.Err() != nil || !strings.Contains(keys.Stdout.String(), "first key") || !strings.Contains(keys.Stderr.Tail(), "development database") {
		t.Errorf("sandyard key beside it: %v, %q, %q", keys.Err(), keys.Stdout.String(), keys.Stderr.Tail())
	}
	again.Signal(syscall.SIGINT)
	again.Await(time.Minute)
	if again.Err() != nil {
		t.Errorf("sandyard dev ended with %v after Ctrl-C", again.Err())
	}
	nothingLeft(t, e, home)
}

// freeAddress is one at which nobody listened a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().String()
}

// nothingLeft checks that no container, process or socket of a stack in home is left.
func nothingLeft(t *testing.T, e *engine, home string) {
	t.Helper()
	if left := e.containers(t); len(left) > 0 {
		t.Errorf("containers left: %v", left)
	}
	if left := processesOf(t, home); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSocket {
			t.Errorf("socket left: %s", path)
		}
		return err
	})
	check(t, err)
}

// processesOf lists the command lines that name the directory.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	check(t, err)
	var found []string
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && strings.Contains(string(line), dir) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
