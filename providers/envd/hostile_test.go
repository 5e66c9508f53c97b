package envd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sandyard/guest/envdpb/filesystem"
	"sandyard/guest/envdpb/filesystem/filesystemconnect"
	"sandyard/guest/envdpb/process"
	"sandyard/guest/envdpb/process/processconnect"
	"sandyard/providers"
	"sandyard/providers/envd"

	"connectrpc.com/connect"
)

// hostileProcess sends what start says.
type hostileProcess struct {
	processconnect.UnimplementedProcessHandler

	start func(context.Context, *connect.ServerStream[process.StartResponse]) error
}

func (h hostileProcess) Start(ctx context.Context, _ *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	return h.start(ctx, stream)
}

// hostileFiles lists more than there can be.
type hostileFiles struct {
	filesystemconnect.UnimplementedFilesystemHandler
}

func (hostileFiles) ListDir(context.Context, *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	return connect.NewResponse(&filesystem.ListDirResponse{Entries: make([]*filesystem.EntryInfo, 20_000)}), nil
}

// hostile serves plain HTTP by other and commands by start.
func hostile(t *testing.T, other http.HandlerFunc, start func(context.Context, *connect.ServerStream[process.StartResponse]) error) *envd.Sandbox {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(hostileProcess{start: start}))
	mux.Handle(filesystemconnect.NewFilesystemHandler(hostileFiles{}))
	if other != nil {
		mux.Handle("/", other)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return envd.New(server.Client(), server.URL)
}

func event(data []byte) *process.StartResponse {
	return &process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Data{
		Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: data}},
	}}}
}

func started() *process.StartResponse {
	return &process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 1}}}}
}

func ended() *process.StartResponse {
	return &process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{}}}}
}

func TestAHostileGuestCannotOverflowTheWorker(t *testing.T) {
	t.Parallel()
	send := func(stream *connect.ServerStream[process.StartResponse], all ...*process.StartResponse) error {
		for _, m := range all {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		return nil
	}
	cmd := providers.Command{Name: "x", Argv: []string{"true"}, MaxOutput: 10}
	t.Run("more output than it may keep", func(t *testing.T) {
		t.Parallel()
		s := hostile(t, nil, func(_ context.Context, stream *connect.ServerStream[process.StartResponse]) error {
			stream.ResponseTrailer().Set("Sandyard-Report", `{"exit_code":99999,"signal":-4,"duration_ms":-9,"stdout_bytes":-1}`)
			return send(stream, started(), event(bytes.Repeat([]byte("x"), 100)), event([]byte("y")), ended())
		})
		r := run(t, s, cmd)
		if string(r.Stdout) != "xxxxxxxxxx" || r.ExitCode > 255 || r.Duration < 0 || r.StdoutBytes < 10 || r.Signal != "" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("no report", func(t *testing.T) {
		t.Parallel()
		s := hostile(t, nil, func(_ context.Context, stream *connect.ServerStream[process.StartResponse]) error {
			return send(stream, started(), ended())
		})
		if _, err := s.Run(patient(t), cmd); class(t, err) != providers.Internal {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no end", func(t *testing.T) {
		t.Parallel()
		s := hostile(t, nil, func(_ context.Context, stream *connect.ServerStream[process.StartResponse]) error {
			return send(stream, started())
		})
		if _, err := s.Run(patient(t), cmd); class(t, err) != providers.Unavailable {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a huge message", func(t *testing.T) {
		t.Parallel()
		s := hostile(t, nil, func(_ context.Context, stream *connect.ServerStream[process.StartResponse]) error {
			return send(stream, started(), event(make([]byte, 20<<20)), ended())
		})
		if _, err := s.Run(patient(t), cmd); err == nil {
			t.Error("it was taken")
		}
	})
	t.Run("output without end and no kill", func(t *testing.T) {
		t.Parallel()
		refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
		s := hostile(t, refuse, func(ctx context.Context, stream *connect.ServerStream[process.StartResponse]) error {
			for err := stream.Send(started()); ; err = stream.Send(event(make([]byte, 1000))) {
				if err != nil || ctx.Err() != nil {
					return err
				}
			}
		})
		limited := cmd
		limited.Timeout = 100 * time.Millisecond
		if _, err := s.Run(patient(t), limited); class(t, err) != providers.Unavailable {
			t.Errorf("got %v", err)
		}
	})
}

func TestAHostileGuestCannotLieAboutFiles(t *testing.T) {
	t.Parallel()
	s := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			fmt.Fprint(w, `[{"path":"/x","name":"x","size":1}]`)
			return
		}
		if r.URL.Query().Get("path") == "error" {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprintf(w, `{"message":"a\u0000b\n%s"}`, strings.Repeat("x", 3000))
			return
		}
		for range 100 {
			_, _ = w.Write(make([]byte, 1000))
		}
	}, nil)
	ctx := patient(t)
	if _, err := s.ReadFile(ctx, "x", 5000); class(t, err) != providers.TooLarge {
		t.Errorf("got %v", err)
	}
	if _, err := s.WriteFile(ctx, "x", []byte("three"), 0); class(t, err) != providers.Internal {
		t.Errorf("got %v", err)
	}
	if _, err := s.ListDir(ctx, "x", 1); class(t, err) != providers.TooLarge {
		t.Errorf("got %v", err)
	}
	_, err := s.ReadFile(ctx, "error", 5000)
	if class(t, err) != providers.Invalid || strings.ContainsAny(err.Error(), "\x00\n") || len(err.Error()) > 1200 {
		t.Errorf("got %q", err)
	}
}

func TestAGuestThatOnlyTalksIsGivenUp(t *testing.T) {
	t.Parallel()
	read, write := io.Pipe()
	go func() {
		for {
			if _, err := write.Write(bytes.Repeat([]byte{0xf5, 'S', 'y', 0x1a, 1, 1, 0, 9}, 100)); err != nil {
				return
			}
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := envd.Attach(ctx, silent{read, write}, envd.Options{}); class(t, err) != providers.Unavailable {
		t.Errorf("got %v", err)
	}
}
