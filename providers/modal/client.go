package modal

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	vendor "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"sandyard/providers/remote"
)

// newClient returns a client of Modal's own. It reads no file of the worker's home, and logs nothing: what it says may
// hold tokens.
func newClient(cfg Config) (*vendor.Client, error) {
	throttled := time.Minute // then a job waits in its queue
	params := &vendor.ClientParams{
		TokenID: cfg.TokenID, TokenSecret: cfg.TokenSecret, Environment: cfg.Environment,
		Logger: slog.New(slog.DiscardHandler), MaxThrottleWait: &throttled,
		GRPCUnaryInterceptors: []grpc.UnaryClientInterceptor{overhear},
	}
	profile := map[string]any{"Active": true}
	if cfg.Server != "" {
		profile["ServerURL"] = cfg.Server
	}
	text, err := json.Marshal(map[string]any{"sandyard": profile})
	if err != nil {
		return nil, err
	}
	params.Config = like(params.Config) // its type has no name outside
	if err := json.Unmarshal(text, params.Config); err != nil {
		return nil, err
	}
	return vendor.NewClientWithOptions(params)
}

func like[T any](*T) *T { return new(T) }

// described is what a list says of a sandbox.
type described struct {
	id      string
	created time.Time
	labels  remote.Labels
}

type overheardKey struct{}

// overhear keeps what the answers to a list say of sandboxes, of which the client hands out the ids alone.
func overhear(
	ctx context.Context, method string, req, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	err := call(ctx, method, req, answer, conn, opts...)
	all, wanted := ctx.Value(overheardKey{}).(map[string]described)
	list, isList := answer.(*pb.SandboxListResponse)
	if err != nil || !wanted || !isList {
		return err
	}
	for _, info := range list.GetSandboxes() {
		d := described{
			id: info.GetId(), created: time.UnixMilli(int64(info.GetCreatedAt() * 1000)).UTC(), labels: remote.Labels{},
		}
		for _, tag := range info.GetTags() {
			d.labels[tag.GetTagName()] = tag.GetTagValue()
		}
		all[d.id] = d
	}
	return nil
}

// overhearing lets lists that are asked for with the context fill the map.
func overhearing(ctx context.Context, all map[string]described) context.Context {
	return context.WithValue(ctx, overheardKey{}, all)
}

// statusOf is the status of the server's in an error; nil = there is none.
func statusOf(err error) *status.Status {
	if s, ok := status.FromError(err); ok {
		return s
	}
	return nil
}
