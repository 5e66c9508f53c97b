//go:build attack

package attack

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// greedy asks for more than the machine has, for one sandbox and for many.
func greedy(s *stage) {
	memory := machineMemory()
	answers := &tally{}
	for _, wish := range []object{
		{"memory_mb": 262144},
		{"memory_mb": 262144, "disk_mb": 200000},
		{"image": image, "memory_mb": 262144},
		{"memory_mb": memory + 1024},
		{"disk_mb": 200000, "memory_mb": 256},
		{"pids": 32768, "memory_mb": 64},
		{"image": image, "pids": 32768},
		{"cpus": 64},
	} {
		r := s.intruder.post("/v1/sandboxes?wait=20s", wish)
		if answers.add(r); !r.ok() {
			continue
		}
		if j := into[accepted](s.t, r).Job; j.State == "succeeded" {
			s.breach("a sandbox of %v is made", wish)
		}
	}
	var made atomic.Int64
	var all sync.WaitGroup
	const share = 8
	for range share + 4 {
		all.Go(func() {
			r := s.intruder.post("/v1/sandboxes?wait=20s", object{"memory_mb": memory / share, "disk_mb": 8, "cpus": 0.1})
			if answers.add(r); r.ok() && into[accepted](s.t, r).Job.State == "succeeded" {
				made.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() >= share {
		s.breach("%d sandboxes have an %dth of the machine's memory each", made.Load(), share)
	}
	s.reached("wishes beyond the machine: %v; %d of %d sandboxes with an %dth of its memory", answers, made.Load(), share+4, share)
}

// machineMemory is in MB.
func machineMemory() int {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb >> 10
		}
	}
	return 0
}

// build submits one and waits for its end. Its log is judged, too.
func (s *stage) build(body object) job {
	for name, v := range map[string]any{"memory_mb": 256, "disk_mb": 64, "timeout_seconds": 60} {
		if _, ok := body[name]; !ok {
			body[name] = v
		}
	}
	r := s.intruder.post("/v1/templates/mine/builds", body)
	if !r.ok() {
		return job{Kind: "build", State: "refused", Error: &struct{ Code, Message string }{r.text("code"), r.text("detail")}}
	}
	j := s.intruder.end(s.t, into[accepted](s.t, r).Job.ID)
	j.Stdout = s.buildLog("mine")
	return j
}

// fullDisk has builds write more than they may, where it is not looked for.
func fullDisk(s *stage) {
	for what, step := range map[string]string{
		"an unlinked file": "exec 3>/b; rm /b; head -c 700M /dev/zero >&3 && sleep 8",
		"/etc/hostname":    "head -c 700M /dev/zero >/etc/hostname && sleep 8",
		"/etc/resolv.conf": "head -c 700M /dev/zero >/etc/resolv.conf && sleep 8",
		"/etc/hosts":       "head -c 700M /dev/zero >/etc/hosts && sleep 8",
		"a file":           "head -c 700M /dev/zero >/b && sleep 8",
	} {
		j := s.build(object{"dockerfile": "FROM " + image + "\nRUN " + step + "\n", "disk_mb": 64})
		if j.State == "succeeded" {
			s.breach("a build that may write 64 MB writes 700 MB to %s", what)
		}
		s.reached("%s: %v", what, j)
	}
}

// workDirs has the engine enter a directory of the intruder's choice as the host's root.
func workDirs(s *stage) {
	for _, step := range []string{
		"WORKDIR /proc/self/fd/7", "WORKDIR /proc/self/fd/8", "WORKDIR /proc/1/cwd", "WORKDIR /sys", "WORKDIR /dev/fd/8", "WORKDIR /.sandyard", "WORKDIR ../../proc/self/fd/8",
		"RUN ln -s /proc/self/fd/8 /x\nWORKDIR /x", "VOLUME /proc", "COPY a /proc/self/cwd/a", "COPY a /sys/a", "COPY a /dev/a", "COPY a /.sandyard/a", "COPY a /etc/../proc/a",
	} {
		j := s.build(object{
			"dockerfile": "FROM " + image + "\n" + step + "\nRUN cat ../../../etc/shadow ../../../../etc/shadow | head -1; ls ../../.. | head -50\n",
			"files":      []object{{"path": "a", "content": "x"}},
		})
		s.reached("%s: %s", strings.ReplaceAll(step, "\n", "; "), j.State)
		if strings.Contains(j.Stdout, "root:") && s.isHosts(j.Stdout) {
			s.breach("%s shows the host's files", step)
		}
		if !strings.HasPrefix(step, "RUN ") && j.State != "refused" {
			s.breach("%s is not refused at submission: %v", step, j)
		}
	}
}

// isHosts says whether a text holds the first line of the host's own file.
func (s *stage) isHosts(text string) bool {
	own, err := os.ReadFile("/etc/shadow")
	first, _, _ := strings.Cut(string(own), "\n")
	return err == nil && first != "" && strings.Contains(text, first)
}

// leftovers has a build step leave a program behind that goes on during the next one.
func leftovers(s *stage) {
	j := s.build(object{"dockerfile": "FROM " + image + `
RUN (setsid sh -c 'while :; do date +%N >/beat; sleep 0.1; done' >/dev/null 2>&1 &) ; sleep 0.5; test -e /beat
RUN a=$(cat /beat); sleep 2; test "$a" = "$(cat /beat)"
`})
	if j.State != "succeeded" {
		s.breach("a program of one build step lives on in the next: %v", j)
	}
	s.reached("%v", j)
}
