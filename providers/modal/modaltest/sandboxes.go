package modaltest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sandyard/providers"
)

// pageSize is how many sandboxes a list shows at once: few, so that callers read more than one page.
const pageSize = 10

// image is one that was built, or could not be.
type image struct {
	ref   string
	inner string // empty = it does not build
}

func imageID(ref string) string {
	if strings.HasPrefix(ref, "im-") {
		return ref
	}
	return "im-" + newID()
}

// sandbox is one sandbox of the inner provider. The server's mutex guards it.
type sandbox struct {
	id, task, app string
	inner         string // its id there
	jwt           string // for the router
	created       float64
	asked         Asked
	tags          map[string]string
	result        *pb.GenericResult // nil = it lives
	commands      map[string]*command

	made     chan struct{} // closed when the inner sandbox runs, or could not be made
	refused  error         // why; valid once it is made
	life     context.Context
	end      context.CancelFunc
	changing sync.Mutex // held while the inner sandbox is made or deleted
	gone     bool       // the inner sandbox is deleted
}

// control is the control plane.
type control struct {
	pb.UnimplementedModalClientServer

	s *Server
}

func (c control) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	return pb.AuthTokenGetResponse_builder{Token: c.s.token}.Build(), nil
}

func (c control) EnvironmentGetOrCreate(
	_ context.Context, ask *pb.EnvironmentGetOrCreateRequest,
) (*pb.EnvironmentGetOrCreateResponse, error) {
	return pb.EnvironmentGetOrCreateResponse_builder{
		EnvironmentId: "en-1",
		Metadata: pb.EnvironmentMetadata_builder{
			Name: ask.GetDeploymentName(), Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: "2025.06"}.Build(),
		}.Build(),
	}.Build(), nil
}

// AppGetOrCreate knows one app of each name, whatever the environment.
func (c control) AppGetOrCreate(
	_ context.Context, ask *pb.AppGetOrCreateRequest,
) (*pb.AppGetOrCreateResponse, error) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, name := range s.apps {
		if name == ask.GetAppName() {
			return pb.AppGetOrCreateResponse_builder{AppId: id}.Build(), nil
		}
	}
	if ask.GetObjectCreationType() != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
		return nil, status.Error(codes.NotFound, "App not found")
	}
	id := "ap-" + newID()
	s.apps[id] = ask.GetAppName()
	return pb.AppGetOrCreateResponse_builder{AppId: id}.Build(), nil
}

// ImageGetOrCreate builds what is nothing but an image of a registry. The others fail.
func (c control) ImageGetOrCreate(
	_ context.Context, ask *pb.ImageGetOrCreateRequest,
) (*pb.ImageGetOrCreateResponse, error) {
	s := c.s
	lines := ask.GetImage().GetDockerfileCommands()
	ref := strings.TrimPrefix(strings.Join(lines, "\n"), "FROM ")
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, i := range s.images {
		if i.ref == ref && i.inner != "" && len(ask.GetImage().GetBaseImages()) == 0 {
			return pb.ImageGetOrCreateResponse_builder{
				ImageId: id,
				Result:  pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build(),
			}.Build(), nil
		}
	}
	return pb.ImageGetOrCreateResponse_builder{
		ImageId: imageID(""),
		Result: pb.GenericResult_builder{
			Status:    pb.GenericResult_GENERIC_STATUS_FAILURE,
			Exception: "Image pull failed: no image " + ref,
		}.Build(),
	}.Build(), nil
}

// ImageFromId knows what was built.
//
//nolint:revive // the name is the client's
func (c control) ImageFromId(_ context.Context, ask *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if _, ok := c.s.images[ask.GetImageId()]; !ok {
		return nil, status.Error(codes.NotFound, "Image not found")
	}
	return pb.ImageFromIdResponse_builder{ImageId: ask.GetImageId()}.Build(), nil
}

// SandboxCreateV2 answers once the sandbox runs. It is made, too, where nobody waits for it any more.
func (c control) SandboxCreateV2(
	ctx context.Context, ask *pb.SandboxCreateV2Request,
) (*pb.SandboxCreateV2Response, error) {
	b, err := c.s.begin(ask)
	if err != nil {
		return nil, err
	}
	select {
	case <-b.made:
	case <-ctx.Done():
		return nil, given(ctx)
	}
	if b.refused != nil {
		return nil, b.refused
	}
	return pb.SandboxCreateV2Response_builder{SandboxId: b.id, TaskId: b.task, Metadata: b.handle()}.Build(), nil
}

func (b *sandbox) handle() *pb.SandboxHandleMetadata {
	return pb.SandboxHandleMetadata_builder{AppId: b.app, Result: b.result}.Build()
}

// begin starts to make a sandbox, or says what is wrong with what was asked for.
func (s *Server) begin(ask *pb.SandboxCreateV2Request) (*sandbox, error) {
	id, def := newID(), ask.GetDefinition()
	env, err := envOf(ask.GetSecretSources())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.images[def.GetImageId()]
	b := &sandbox{
		id: "sb-" + id, task: "ta-" + id, app: ask.GetAppId(), inner: id, jwt: newToken(), tags: tagsOf(ask.GetTags()),
		commands: map[string]*command{}, made: make(chan struct{}),
		created: float64(time.Now().UnixMicro()) / 1e6,
	}
	b.asked = Asked{
		App: s.apps[b.app], Name: def.GetName(), Image: from.ref, WorkDir: def.GetWorkdir(),
		Command: def.GetEntrypointArgs(), Tags: maps.Clone(b.tags), Env: env,
		Timeout: time.Duration(def.GetTimeoutSecs()) * time.Second,
		CPU:     float64(def.GetResources().GetMilliCpu()) / 1000, MemoryMiB: int(def.GetResources().GetMemoryMb()),
		BlockNetwork: def.GetNetworkAccess().GetNetworkAccessType() == pb.NetworkAccess_BLOCKED, Definition: def,
	}
	living := 0
	for _, other := range s.boxes {
		if other.result != nil {
			continue
		}
		if living++; b.asked.Name != "" && other.asked.Name == b.asked.Name && other.app == b.app {
			return nil, status.Errorf(codes.AlreadyExists, "Sandbox with name '%s' already exists", b.asked.Name)
		}
	}
	switch {
	case b.asked.App == "":
		return nil, status.Error(codes.NotFound, "App not found")
	case from.inner == "":
		return nil, status.Error(codes.NotFound, "Image not found")
	case b.asked.Timeout <= 0:
		return nil, status.Error(codes.InvalidArgument, "Sandboxes need a timeout")
	case s.o.MaxSandboxes > 0 && living >= s.o.MaxSandboxes:
		return nil, status.Error(codes.ResourceExhausted, "Sandbox limit reached")
	}
	if n := len(s.boxes); n > 0 { // pages begin at a time
		b.created = max(b.created, s.boxes[n-1].created+1e-6)
	}
	b.life, b.end = context.WithCancel(s.life)
	s.boxes = append(s.boxes, b)
	s.work.Go(func() { s.make(b, from.inner) })
	return b, nil
}

// make makes the inner sandbox, and ends it after its timeout.
func (s *Server) make(b *sandbox, image string) {
	timer := time.NewTimer(b.asked.Timeout)
	defer timer.Stop()
	spec := providers.Spec{
		ID: b.inner, Image: image, Env: b.asked.Env, WorkDir: s.o.WorkDir, Network: !b.asked.BlockNetwork,
		Resources: providers.Resources{Pids: 4096}, // of which Modal says nothing
	}
	if b.asked.WorkDir != "" {
		spec.WorkDir = b.asked.WorkDir
	}
	b.changing.Lock()
	_, err := s.inner.Create(s.life, spec)
	b.changing.Unlock()
	if err != nil {
		b.refused = refusal(err)
		s.finish(b, pb.GenericResult_GENERIC_STATUS_INIT_FAILURE)
	}
	close(b.made)
	select {
	case <-timer.C:
		s.finish(b, pb.GenericResult_GENERIC_STATUS_TIMEOUT)
	case <-b.life.Done():
	}
}

// finish ends a sandbox that lives, and returns the result of one that has ended before.
func (s *Server) finish(b *sandbox, as pb.GenericResult_GenericStatus) (before *pb.GenericResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.result == nil {
		b.result = pb.GenericResult_builder{Status: as}.Build()
		b.end()
		s.work.Go(func() { s.remove(s.life, b) })
		return nil
	}
	return b.result
}

// remove deletes the inner sandbox, once.
func (s *Server) remove(ctx context.Context, b *sandbox) {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.end()
	if b.gone {
		return
	}
	err := s.inner.Delete(ctx, b.inner)
	if b.gone = err == nil; err != nil && ctx.Err() == nil {
		s.t.Errorf("delete of sandbox %s: %v", b.id, err)
	}
}

// find returns the newest sandbox that is meant; nil = there is none.
func (s *Server) find(meant func(*sandbox) bool) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range slices.Backward(s.boxes) {
		if meant(b) {
			return b
		}
	}
	return nil
}

func (s *Server) get(id string) (*sandbox, error) {
	b := s.find(func(b *sandbox) bool { return b.id == id })
	if b == nil {
		return nil, status.Errorf(codes.NotFound, "Sandbox %s not found", id)
	}
	return b, nil
}

// resultOf is nil while a sandbox lives.
func (s *Server) resultOf(b *sandbox) *pb.GenericResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.result
}

func (c control) SandboxTerminateV2(
	_ context.Context, ask *pb.SandboxTerminateRequest,
) (*pb.SandboxTerminateResponse, error) {
	b, err := c.s.get(ask.GetSandboxId())
	if err != nil {
		return nil, err
	}
	before := c.s.finish(b, pb.GenericResult_GENERIC_STATUS_TERMINATED)
	return pb.SandboxTerminateResponse_builder{ExistingResult: before}.Build(), nil
}

// SandboxWaitV2 answers without a result where the sandbox still lives after the time to wait.
func (c control) SandboxWaitV2(ctx context.Context, ask *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	b, err := c.s.get(ask.GetSandboxId())
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(time.Duration(float64(ask.GetTimeout()) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-b.life.Done():
	case <-timer.C:
	case <-ctx.Done():
		return nil, given(ctx)
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return pb.SandboxWaitResponse_builder{Result: b.result, Metadata: b.handle()}.Build(), nil
}

// SandboxGetTaskIdV2 gives no task of a sandbox that has ended.
//
//nolint:revive // the name is the client's
func (c control) SandboxGetTaskIdV2(
	_ context.Context, ask *pb.SandboxGetTaskIdRequest,
) (*pb.SandboxGetTaskIdResponse, error) {
	b, err := c.s.get(ask.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if result := c.s.resultOf(b); result != nil {
		return pb.SandboxGetTaskIdResponse_builder{TaskResult: result}.Build(), nil
	}
	return pb.SandboxGetTaskIdResponse_builder{TaskId: &b.task}.Build(), nil
}

func (c control) SandboxGetFromNameV2(
	_ context.Context, ask *pb.SandboxGetFromNameRequest,
) (*pb.SandboxGetFromNameResponse, error) {
	named := func(b *sandbox) bool { return b.asked.App == ask.GetAppName() && b.asked.Name == ask.GetSandboxName() }
	b := c.s.find(func(b *sandbox) bool { return named(b) && b.result == nil })
	if b == nil && ask.GetIncludeTerminated() {
		b = c.s.find(named)
	}
	if b == nil {
		return nil, status.Error(codes.NotFound, "Sandbox not found")
	}
	return pb.SandboxGetFromNameResponse_builder{SandboxId: b.id}.Build(), nil
}

// SandboxGetFromName is of the older backend, which the client asks afterwards. It has no sandboxes.
func (c control) SandboxGetFromName(
	context.Context, *pb.SandboxGetFromNameRequest,
) (*pb.SandboxGetFromNameResponse, error) {
	return nil, status.Error(codes.NotFound, "Sandbox not found")
}

// SandboxListV2 gives a page, newest first, of those that were made before a time.
func (c control) SandboxListV2(_ context.Context, ask *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	s, want, before := c.s, tagsOf(ask.GetTags()), ask.GetBeforeTimestamp()
	s.mu.Lock()
	defer s.mu.Unlock()
	var page []*pb.SandboxInfo
	for _, b := range slices.Backward(s.boxes) {
		if b.result != nil && !ask.GetIncludeFinished() || before > 0 && b.created >= before ||
			ask.GetAppId() != "" && b.app != ask.GetAppId() || !holds(b.tags, want) || len(page) == pageSize {
			continue
		}
		page = append(page, pb.SandboxInfo_builder{
			Id: b.id, CreatedAt: b.created, AppId: b.app, Name: b.asked.Name, Tags: tagList(b.tags),
			ImageId: b.asked.Definition.GetImageId(), TimeoutSecs: b.asked.Definition.GetTimeoutSecs(),
			Metadata: b.handle(), TaskInfo: pb.TaskInfo_builder{Id: b.task, StartedAt: b.created}.Build(),
		}.Build())
	}
	return pb.SandboxListResponse_builder{Sandboxes: page}.Build(), nil
}

func (c control) SandboxTagsGetV2(
	_ context.Context, ask *pb.SandboxTagsGetRequest,
) (*pb.SandboxTagsGetResponse, error) {
	b, err := c.s.get(ask.GetSandboxId())
	if err != nil {
		return nil, err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return pb.SandboxTagsGetResponse_builder{Tags: tagList(b.tags)}.Build(), nil
}

// envOf reads the variables of a create or a command. The stand-in keeps no secrets.
func envOf(sources []*pb.SecretSource) (map[string]string, error) {
	env := map[string]string{}
	for _, source := range sources {
		if source.HasSecretId() {
			return nil, status.Error(codes.NotFound, "Secret not found")
		}
		maps.Copy(env, source.GetEnv().GetContents())
	}
	return env, nil
}

func tagsOf(list []*pb.SandboxTag) map[string]string {
	tags := map[string]string{}
	for _, tag := range list {
		tags[tag.GetTagName()] = tag.GetTagValue()
	}
	return tags
}

func tagList(tags map[string]string) (list []*pb.SandboxTag) {
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, pb.SandboxTag_builder{TagName: name, TagValue: tags[name]}.Build())
	}
	return list
}

func holds(all, some map[string]string) bool {
	for name, value := range some {
		if got, ok := all[name]; !ok || got != value {
			return false
		}
	}
	return true
}
