package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"sandyard/providers"
)

const (
	// classHeader marks an answer that tells what went wrong, by the class of the provider's error.
	classHeader = "Sandyard-Class"
	// uploadPatience is how long an upload may bring nothing.
	uploadPatience = 2 * time.Minute
	maxRefusal     = 16 << 10
)

// Classes of refusals that no provider makes.
const (
	RangeOutside providers.Class = "range_not_satisfiable"
	Precondition providers.Class = "precondition_failed"
	Broken       providers.Class = Malformed
)

// sandbox opens the request's sandbox, or answers.
func (g *Gateway) sandbox(w http.ResponseWriter, r *http.Request) (providers.Sandbox, bool) {
	ctx, cancel := context.WithTimeout(r.Context(), dialPatience)
	defer cancel()
	box, err := g.Open(ctx, targetOf(r.Context()).sandbox)
	if err != nil {
		g.refuse(w, r, err)
	}
	return box, err == nil
}

type refusalBody struct {
	Message string `json:"message"`
}

// refuse answers with an error of the provider.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := providers.AsError(err)
	if e.Retryable() && r.Context().Err() == nil {
		g.Log.WarnContext(r.Context(), "call to a sandbox failed", "sandbox_id", targetOf(r.Context()).sandbox, "error", err)
	}
	header := w.Header()
	for name := range header {
		header.Del(name) // of the answer that did not come about
	}
	header.Set(classHeader, string(e.Class))
	header.Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadGateway)
	_ = json.NewEncoder(w).Encode(refusalBody{e.Message}) // a caller that is gone needs no answer
}

// RefusalOf returns the *providers.Error that a gateway answered with, or nil for an answer that is none.
func RefusalOf(answer *http.Response) error {
	class := answer.Header.Get(classHeader)
	switch {
	case answer.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return RangeOutside.Errorf("the range is outside the file (%s)", answer.Header.Get("Content-Range"))
	case answer.StatusCode == http.StatusPreconditionFailed:
		return Precondition.Errorf("the file does not match If-Match or If-Unmodified-Since")
	case class == "" && answer.StatusCode >= http.StatusBadRequest:
		return NotReached(errors.New(answer.Status))
	case class == "":
		return nil
	}
	var body refusalBody
	if json.NewDecoder(io.LimitReader(answer.Body, maxRefusal)).Decode(&body) != nil {
		body.Message = http.StatusText(answer.StatusCode)
	}
	return &providers.Error{Class: providers.Class(class), Message: body.Message}
}

// IsRefusal says whether err is a gateway's answer.
func IsRefusal(err error) bool {
	var e *providers.Error
	return errors.As(err, &e)
}

// NotReached is the *providers.Error of a gateway that did not answer.
func NotReached(err error) error {
	return providers.Unavailable.Errorf("the sandbox's worker did not answer; try again: %w", err)
}

// BrokenOff is the *providers.Error of a request whose body is not what HTTP allows, or did not come to its end.
func BrokenOff(err error) error {
	return &providers.Error{Class: Broken, Message: messages()[Malformed], Err: err}
}

// Asleep is the *providers.Error of a paused sandbox that was to be resumed and was not.
func Asleep() error {
	return providers.Paused.Errorf("the sandbox is paused and was not resumed in time; try again")
}

// Absent is the *providers.Error of a sandbox that no gateway holds.
func Absent() error {
	return providers.Unavailable.Errorf("no worker holds the sandbox at the moment; try again")
}

// arriving is the body of an upload that may pause, but not for ever.
type arriving struct {
	io.Reader
	control *http.ResponseController
}

func bodyOf(w http.ResponseWriter, r *http.Request) io.Reader {
	return arriving{r.Body, http.NewResponseController(w)}
}

func (a arriving) Read(p []byte) (int, error) {
	if err := a.control.SetReadDeadline(time.Now().Add(uploadPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return a.Reader.Read(p)
}

func modeOf(r *http.Request) (uint32, error) {
	text := r.URL.Query().Get("mode")
	if text == "" {
		return 0, nil
	}
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode == 0 || mode > 0o777 {
		return 0, providers.Invalid.Errorf("mode '%s' is not a file mode such as 0644", text)
	}
	return uint32(mode), nil
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a caller that is gone needs no answer
}
