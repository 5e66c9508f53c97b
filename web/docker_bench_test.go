package web_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"sandyard/dev/abbench"
	"sandyard/dev/testenv"
	"sandyard/jobs"
	"sandyard/jobs/node"
	"sandyard/jobs/webhook"
	"sandyard/jobs/worker"
	"sandyard/netguard"
	"sandyard/providers/docker"
	"sandyard/providers/docker/pool"
	"sandyard/web"
)

// BenchmarkSandbox measures whole requests, over HTTP, through queue and worker, into a real container and back. The
// baseline does the same with a container like the sandbox's through the Engine API: no queue, no record, nothing that
// survives its caller.
func BenchmarkSandbox(b *testing.B) {
	y := newDockerYard(b, pool.Config{})
	box, warm := y.box(), y.container()
	b.Run("exec true/vs docker exec", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 40, Ours: 5, Base: 2},
			abbench.Timed(func() error { return y.exec(box, "") }), abbench.Timed(func() error { return y.dockerExec(warm) }))
	})
	b.Run("exec true/16 clients/vs docker exec", func(b *testing.B) {
		abbench.Load{Callers: 16, Rounds: 3, Turn: 2 * time.Second}.Run(b, "execs/s",
			func(int) error { return y.exec(box, `,"parallel":true`) }, func(int) error { return y.dockerExec(warm) })
	})
	b.Run("write 1 KiB/vs docker copy", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 20, Ours: 5, Base: 2},
			abbench.Timed(func() error { return y.write(box) }), abbench.Timed(func() error { return y.copyTo(warm, "bench.txt", oneKiB()) }))
	})
	b.Run("read 1 KiB/vs docker copy", func(b *testing.B) {
		check(b, errors.Join(y.write(box), y.copyTo(warm, "bench.txt", oneKiB())))
		abbench.Latency(b, abbench.Turns{Rounds: 20, Ours: 5, Base: 2},
			abbench.Timed(func() error { return y.read(box) }), abbench.Timed(func() error { return y.copyFrom(warm, "bench.txt", oneKiB()) }))
	})
	b.Run("write 100 MiB, provider alone/vs docker copy", func(b *testing.B) {
		inside, data := must(y.provider.Open(b.Context(), box))(b), bytes.Repeat(oneKiB(), 100<<10)
		abbench.Latency(b, abbench.Turns{Rounds: 4, Ours: 1, Base: 1}, abbench.Timed(func() error {
			_, err := inside.WriteFile(b.Context(), "large", data, 0)
			return err
		}), abbench.Timed(func() error { return y.copyTo(warm, "large", data) }))
	})
	b.Run("read 100 MiB, provider alone/vs docker copy", func(b *testing.B) {
		inside, data := must(y.provider.Open(b.Context(), box))(b), bytes.Repeat(oneKiB(), 100<<10)
		_, err := inside.WriteFile(b.Context(), "large", data, 0)
		check(b, errors.Join(err, y.copyTo(warm, "large", data)))
		abbench.Latency(b, abbench.Turns{Rounds: 4, Ours: 1, Base: 1}, abbench.Timed(func() error {
			got, err := inside.ReadFile(b.Context(), "large", int64(len(data)))
			return errors.Join(err, same(got, data))
		}), abbench.Timed(func() error { return y.copyFrom(warm, "large", data) }))
		check(b, inside.Remove(b.Context(), "large"))
	})
	b.Run("write 100 MiB, provider alone/vs cat over attach", func(b *testing.B) {
		inside, data := must(y.provider.Open(b.Context(), box))(b), bytes.Repeat(oneKiB(), 100<<10)
		abbench.Latency(b, abbench.Turns{Rounds: 4, Ours: 1, Base: 1}, abbench.Timed(func() error {
			_, err := inside.WriteFile(b.Context(), "large", data, 0)
			return err
		}), func() (time.Duration, error) { return y.attachWrite(data) })
	})
	b.Run("read 100 MiB, provider alone/vs cat over attach", func(b *testing.B) {
		inside, data := must(y.provider.Open(b.Context(), box))(b), bytes.Repeat(oneKiB(), 100<<10)
		must(inside.WriteFile(b.Context(), "large", data, 0))(b)
		abbench.Latency(b, abbench.Turns{Rounds: 4, Ours: 1, Base: 1}, abbench.Timed(func() error {
			_, err := inside.ReadFile(b.Context(), "large", int64(len(data)))
			return err
		}), func() (time.Duration, error) { return y.attachRead(len(data)) })
		check(b, inside.Remove(b.Context(), "large"))
	})
	b.Run("create/vs docker run", func(b *testing.B) {
		abbench.Latency(b, abbench.Turns{Rounds: 8, Ours: 1, Base: 1}, y.createAndDelete, y.runAndRemove)
	})
}

const benchImage = "sandyard/python:default"

// dockerYard is an API on a worker with a Docker provider, and the engine that both ways use.
type dockerYard struct {
	*rig
	b        *testing.B
	engine   *client.Client
	provider *docker.Provider
	model    container.InspectResponse // of a sandbox
	http     *fasthttp.Client
}

func newDockerYard(b *testing.B, pool pool.Config) *dockerYard {
	y := &dockerYard{b: b, http: &fasthttp.Client{MaxConnsPerHost: 256}}
	y.rig = newRig(b, func(c *web.Config) {
		catalog := jobs.Catalog{
			Providers: []string{"docker"}, Images: []string{"*"}, Template: "python",
			Templates: map[string]string{"python": benchImage},
		}
		check(b, c.Store.Declare(b.Context(), catalog.Declared()))
		c.Jobs = jobs.NewClient(c.Store, c.Queue, catalog, c.Log)
	})
	y.engine = must(client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation()))(b)
	b.Cleanup(func() { y.engine.Close() })
	y.workOnDocker(pool)
	b.Cleanup(y.http.CloseIdleConnections)
	y.model = must(y.engine.ContainerInspect(b.Context(), "sandyard-"+y.box()))(b)
	return y
}

func (y *dockerYard) workOnDocker(pool pool.Config) {
	log := slog.New(slog.DiscardHandler)
	p := must(docker.New(context.Background(), docker.Config{Unsafe: true, Fleet: "bench-" + uuid.NewString(), Guest: os.DirFS(buildGuest(y.b)), Pool: pool}))(y.b)
	y.provider = p
	y.b.Cleanup(func() {
		_ = y.engine.VolumeRemove(context.Background(), p.GuestVolume(), false) // another installation may use the same guest
		check(y.b, p.Close())
	})
	check(y.b, p.Ensure(context.Background(), benchImage))
	w := worker.New(worker.Config{
		Store: y.store, Redis: y.redis, Images: []string{"*"}, Provider: p, Engine: "here", Slots: 64,
		Pool: node.PoolSizes{Min: pool.Size, Max: pool.Max}, Lease: 10 * time.Second, Grace: 5 * time.Second,
		Webhooks: webhook.New(y.store, y.queue, netguard.Rules{}, log), Metrics: worker.NewMetrics(prometheus.NewRegistry()), Log: log,
	})
	check(y.b, w.Start(context.Background()))
	y.b.Cleanup(func() { w.Stop(context.Background()) })
}

// buildGuest makes the guest from the source as it is, not from what was built some time ago.
func buildGuest(b *testing.B) string {
	dir := b.TempDir()
	check(b, testenv.BuildPrograms(dir, "guest", "sup"))
	return dir
}

// box creates a sandbox that is deleted when the benchmark ends.
func (y *dockerYard) box() string {
	id := must(y.create())(y.b)
	y.b.Cleanup(func() { check(y.b, y.remove(id)) })
	return id
}

func (y *dockerYard) create() (string, error) {
	var a answer
	body, err := y.ask("POST", "/v1/sandboxes?wait=60s", `{}`, "succeeded")
	if err == nil {
		err = json.Unmarshal(body, &a.body)
	}
	return a.text("sandbox.id"), err
}

func (y *dockerYard) remove(id string) error {
	_, err := y.ask("DELETE", "/v1/sandboxes/"+id+"?wait=60s", "", "succeeded")
	return err
}

func (y *dockerYard) createAndDelete() (time.Duration, error) {
	began := time.Now()
	id, err := y.create()
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	return took, y.remove(id)
}

func (y *dockerYard) exec(box, more string) error {
	_, err := y.ask("POST", "/v1/sandboxes/"+box+"/exec?wait=30s", `{"argv":["true"]`+more+`}`, `"exit_code":0`)
	return err
}

func (y *dockerYard) write(box string) error {
	_, err := y.ask("POST", "/v1/sandboxes/"+box+"/files/write?wait=30s",
		`{"path":"bench.txt","content":"`+string(oneKiB())+`"}`, `"size":1024`)
	return err
}

func (y *dockerYard) read(box string) error {
	_, err := y.ask("POST", "/v1/sandboxes/"+box+"/files/read?wait=30s", `{"path":"bench.txt"}`, string(oneKiB()))
	return err
}

func oneKiB() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 64) }

// ask makes a request whose answer must be about a finished job and hold want.
func (y *dockerYard) ask(method, path, body, want string) ([]byte, error) {
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	req.SetRequestURI(y.url + path)
	req.Header.SetMethod(method)
	req.Header.Set("Authorization", "Bearer "+y.key)
	if body != "" {
		req.Header.SetContentType("application/json")
		req.SetBodyString(body)
	}
	if err := y.http.Do(req, res); err != nil {
		return nil, err
	}
	answer := bytes.Clone(res.Body())
	if res.StatusCode() != 200 || !bytes.Contains(answer, []byte(want)) {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, res.StatusCode(), answer)
	}
	return answer, nil
}

// container starts one like a sandbox's, but with sleep in place of the guest. Its work directory is a volume of the
// same size in memory: Docker's copy does not reach into a tmpfs mount.
func (y *dockerYard) container() string {
	id := must(y.start())(y.b)
	y.b.Cleanup(func() { check(y.b, y.drop(id)) })
	return id
}

func (y *dockerYard) start() (string, error) {
	ctx := context.Background()
	config, host := *y.model.Config, *y.model.HostConfig
	config.Hostname, config.Entrypoint, config.Cmd, config.OpenStdin = "", []string{"sleep", "infinity"}, nil, false
	config.NetworkDisabled = false // as docker run --network none has it
	host.Tmpfs = map[string]string{"/tmp": host.Tmpfs["/tmp"]}
	host.Mounts = []mount.Mount{{Type: mount.TypeVolume, Target: config.WorkingDir, VolumeOptions: &mount.VolumeOptions{
		DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{"type": "tmpfs", "device": "tmpfs", "o": "size=256m,uid=1000,gid=1000"}},
	}}}
	c, err := y.engine.ContainerCreate(ctx, &config, &host, nil, nil, "")
	if err != nil {
		return "", err
	}
	return c.ID, y.engine.ContainerStart(ctx, c.ID, container.StartOptions{})
}

func (y *dockerYard) drop(id string) error {
	return y.engine.ContainerRemove(context.Background(), id, container.RemoveOptions{Force: true, RemoveVolumes: true})
}

func (y *dockerYard) runAndRemove() (time.Duration, error) {
	began := time.Now()
	id, err := y.start()
	took := time.Since(began)
	if id == "" {
		return took, err
	}
	return took, errors.Join(err, y.drop(id))
}

// dockerExec runs true and reads its output and exit code.
func (y *dockerYard) dockerExec(id string) error {
	ctx := context.Background()
	made, err := y.engine.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: []string{"true"}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	attached, err := y.engine.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	if _, err := stdcopy.StdCopy(io.Discard, io.Discard, attached.Reader); err != nil {
		return err
	}
	ended, err := y.engine.ContainerExecInspect(ctx, made.ID)
	if err == nil && (ended.Running || ended.ExitCode != 0) {
		err = fmt.Errorf("docker exec: %+v", ended)
	}
	return err
}

func (y *dockerYard) copyTo(id, name string, content []byte) error {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Uid: 1000, Gid: 1000})
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return y.engine.CopyToContainer(context.Background(), id, y.model.Config.WorkingDir, &buf, container.CopyToContainerOptions{})
}

func (y *dockerYard) copyFrom(id, name string, want []byte) error {
	body, _, err := y.engine.CopyFromContainer(context.Background(), id, y.model.Config.WorkingDir+"/"+name)
	if err != nil {
		return err
	}
	defer body.Close()
	r := tar.NewReader(body)
	if _, err := r.Next(); err != nil {
		return err
	}
	got, err := io.ReadAll(r)
	return errors.Join(err, same(got, want))
}

func same(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes came back, which are not the %d that were written", len(got), len(want))
	}
	return nil
}
