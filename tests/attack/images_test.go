//go:build attack

package attack

import (
	"context"
	"net"
	"strings"
	"sync/atomic"

	"github.com/docker/docker/api/types/container"
)

// traversal has the engine answer other questions than for an image.
func traversal(s *stage) {
	victim := s.victim()
	listener, calls := s.listen()
	names := []string{
		"../containers/" + victim, "../containers/" + victim[:12], "x/../../containers/" + victim, "..%2fcontainers%2f" + victim,
		"../distribution/" + listener + "/x", "../../v1.40/containers/" + victim, "./../containers/" + victim, "../info#", "..\\containers\\" + victim,
		listener + "/x:latest", "http://" + listener + "/x", "\x7f", strings.Repeat("a/", 200) + "b",
	}
	answers := &tally{}
	for _, name := range names {
		s.useImage(name, answers)
	}
	if n := calls.Load(); n > 0 {
		s.breach("the engine called a listener of the intruder's %d times", n)
	}
	s.reached("%d names: %v", len(names), answers)
}

// victim is another application's container on the same engine, with a secret in its environment. It is never started.
func (s *stage) victim() string {
	ctx := context.Background()
	made, err := s.engine.ContainerCreate(ctx, &container.Config{
		Image: image, Cmd: []string{"sleep", "1d"}, Env: []string{"SECRET=" + s.markers.of("victim")},
		Labels: map[string]string{"sandyard.test": "attack"}, NetworkDisabled: true,
	}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	must(s.t, err)
	s.t.Cleanup(func() { _ = s.engine.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true}) })
	return made.ID
}

// listen counts who calls.
func (s *stage) listen() (string, *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	s.t.Cleanup(func() { l.Close() })
	var calls atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			conn.Close()
		}
	}()
	return l.Addr().String(), &calls
}

// foreignImages names other tenants' images, and those that only the operator has.
func foreignImages(s *stage) {
	inspected, err := s.engine.ImageInspect(s.t.Context(), s.neighbour.owns.image)
	must(s.t, err)
	id := strings.TrimPrefix(inspected.ID, "sha256:")
	repository, tag, _ := strings.Cut(s.neighbour.owns.image, ":")
	names := []string{
		s.neighbour.owns.image, "docker.io/" + s.neighbour.owns.image, "docker.io/library/../" + s.neighbour.owns.image, repository, repository + ":" + strings.ToUpper(tag),
		id, id[:12], id[:8], id[:6], s.shortest(id), "sha256:" + id, "sha256:" + id[:12], strings.ToUpper(id[:12]), image + "@sha256:" + id,
	}
	answers := &tally{}
	for _, name := range names {
		s.useImage(name, answers)
	}
	s.reached("%d spellings: %v", len(names), answers)
}

// shortest is the shortest prefix of an image's id that names it alone.
func (s *stage) shortest(id string) string {
	for n := 1; n < len(id); n++ {
		if found, err := s.engine.ImageInspect(s.t.Context(), id[:n]); err == nil && strings.HasSuffix(found.ID, id) {
			return id[:n]
		}
	}
	return id
}

// useImage tries an image's name wherever one may be given. What comes up shows what is in it.
func (s *stage) useImage(name string, answers *tally) {
	const show = "cat /opt/secret.txt; env"
	quick := object{"memory_mb": 128, "disk_mb": 32}
	with := func(more object) object {
		for k, v := range quick {
			if _, ok := more[k]; !ok {
				more[k] = v
			}
		}
		return more
	}
	build := func(body object) reply {
		return s.intruder.post("/v1/templates/taken/builds?wait=30s", with(body))
	}
	for what, try := range map[string]func() reply{
		"run":      func() reply { return s.intruder.post("/v1/run?wait=30s", with(object{"image": name, "command": show})) },
		"create":   func() reply { return s.intruder.post("/v1/sandboxes?wait=30s", with(object{"image": name})) },
		"template": func() reply { return s.template(name) },
		"FROM": func() reply {
			return build(object{"dockerfile": "FROM " + name + "\nRUN " + show + "\nCOPY ${SECRET:-a} /a", "files": []object{{"path": "a", "content": ""}}})
		},
		"COPY --from": func() reply {
			return build(object{"dockerfile": "FROM " + image + "\nCOPY --from=" + name + " /opt/secret.txt /x\nRUN cat /x"})
		},
		"script":       func() reply { return build(object{"script": show, "from": name}) },
		"build image":  func() reply { return build(object{"image": name}) },
		"E2B template": func() reply { return s.intruder.post("/sandboxes", object{"templateID": name}) },
	} {
		r := try()
		if answers.add(r); r.ok() {
			s.tookImage(what, name, r)
		}
	}
}

func (s *stage) template(name string) reply {
	r := s.intruder.do(request{method: "PUT", path: "/v1/templates/taken", body: object{"image": name}})
	if !r.ok() {
		return r
	}
	return s.intruder.post("/v1/sandboxes?wait=30s", object{"template": "taken", "memory_mb": 128, "disk_mb": 32})
}

// tookImage looks at what was accepted: a job that fails has still had the engine asked.
func (s *stage) tookImage(what, name string, r reply) {
	out := into[accepted](s.t, r)
	if out.Job.ID == "" {
		s.breach("%s: the image %.80q is taken: %d", what, name, r.status)
		return
	}
	s.breach("%s: the image %.80q is taken: %v", what, name, s.intruder.end(s.t, out.Job.ID))
	if what != "run" && what != "create" {
		s.buildLog("taken")
	}
}

// buildLog is that of a template's last build.
func (s *stage) buildLog(template string) string {
	page := into[struct{ Builds []struct{ ID string } }](s.t, s.intruder.get("/v1/templates/"+template+"/builds?limit=1"))
	if len(page.Builds) == 0 {
		return ""
	}
	return s.intruder.get("/v1/templates/" + template + "/builds/" + page.Builds[0].ID + "/log").head
}
