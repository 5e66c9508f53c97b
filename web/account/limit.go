package account

import (
	"context"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/rest"
)

// LimitList is the limits that hold for a request.
type LimitList struct {
	Limits []Limit `json:"limits"`
}

// Limit is one limit with what is in use of it.
type Limit struct {
	Limit     string   `json:"limit" doc:"Its name, as in an error limit_reached; the names of a user's limits begin with user_" example:"max_sandboxes"`
	Used      *float64 `json:"used,omitempty" doc:"How much of it is in use; absent for a job rate that is not limited or cannot be looked up"`
	Max       *float64 `json:"max,omitempty" doc:"Absent = no limit. Of a job rate, the jobs that may be submitted at once"`
	PerSecond *float64 `json:"per_second,omitempty" doc:"Of a job rate: the jobs that may be submitted a second"`
}

func (s *Server) addLimits() {
	op := rest.Operation("get-limits", "GET /v1/limits", Tag,
		"Get the limits of your tenant and user, with what is in use")
	op.Description = "The user's limits are in the answer if the API key belongs to a user."
	rest.Register(s.api, op, s.limits)
}

func (s *Server) limits(ctx context.Context, _ *struct{}) (*rest.Output[LimitList], error) {
	uses, err := s.LimitsInUse(ctx)
	if err != nil {
		return nil, err
	}
	return rest.OK(LimitList{rest.Docs(uses, func(u models.LimitUse) Limit {
		return Limit{Limit: u.Name, Used: u.Used, Max: u.Max, PerSecond: u.PerSecond}
	})}), nil
}

// LimitsInUse are the limits that hold for a request.
func (s *Server) LimitsInUse(ctx context.Context) ([]models.LimitUse, error) {
	r := middleware.RequestOf(ctx)
	return s.store.LimitsInUse(ctx, r.Tenant, r.User, func(b []models.Bucket) []int64 {
		taken, err := s.queue.Lacking(ctx, b)
		if err != nil {
			return nil
		}
		return taken
	})
}
