package guest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"sandyard/guest/protocol"
)

// call is a handler that answers with what f returns, as JSON; nothing is no content.
func call(f func(http.ResponseWriter, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := f(w, r)
		switch {
		case err != nil:
			writeError(w, err)
		case answer == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			writeJSON(w, http.StatusOK, answer)
		}
	}
}

// body reads the JSON that a call was sent.
func body[T any](w http.ResponseWriter, r *http.Request) (in T, err error) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&in); err != nil {
		return in, protocol.Errorf(protocol.ReasonInvalid, "the body cannot be read: %v", err)
	}
	return in, nil
}

// waiting is ctx for as long as the request's parameter wait_ms allows.
func waiting(ctx context.Context, r *http.Request) (context.Context, context.CancelFunc) {
	ms, err := strconv.ParseUint(r.URL.Query().Get("wait_ms"), 10, 32)
	if err != nil {
		ms = 0
	}
	return context.WithTimeout(ctx, min(time.Duration(ms)*time.Millisecond, maxWait))
}

// readNumber reads the text of the parameter or header name. It leaves *to as it is where there is none.
func readNumber(name, text string, to *int64) error {
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return protocol.Errorf(protocol.ReasonInvalid, "%s '%s' is not a number", name, text)
	}
	*to = n
	return nil
}
