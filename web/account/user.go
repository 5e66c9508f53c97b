package account

import (
	"context"
	"net/http"

	"sandyard/models"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// UserList is a tenant's users.
type UserList struct {
	Users []User `json:"users" doc:"By name, at most 1000"`
}

// NewUserBody is the body of a request for a user.
type NewUserBody struct {
	Name     string `json:"name" minLength:"1" maxLength:"100" doc:"No two users of the installation have the same name"`
	Password string `json:"password" minLength:"8" maxLength:"1024"`
	Role     string `json:"role,omitempty" enum:"member,admin,operator" doc:"Default member. Only what your own scopes open"`
}

// UserBody is the body of a change of a user.
type UserBody struct {
	Password string `json:"password,omitempty" minLength:"8" maxLength:"1024" doc:"The user's logins end"`
	Role     string `json:"role,omitempty" enum:"member,admin,operator" doc:"Only what your own scopes open"`
	CeilingsBody
}

type newUserInput struct{ Body NewUserBody }

type userInput struct {
	ID string `path:"id" pattern:"^usr_[0-9a-v]{26}$" patternDescription:"a user's id"`
}

type changeUserInput struct {
	ID   string `path:"id" pattern:"^usr_[0-9a-v]{26}$" patternDescription:"a user's id"`
	Body UserBody
}

// listedUsers is how many users are listed.
const listedUsers = 1000

func (s *Server) addUsers() {
	rest.Route(s.api, "list-users", "GET /v1/users", Tag, "List your tenant's users (scope admin)", s.listUsers)
	create := rest.Operation("create-user", "POST /v1/users", Tag, "Create a user, who can log in (scope admin)")
	create.DefaultStatus = http.StatusCreated
	rest.Register(s.api, create, s.createUser)
	rest.Route(s.api, "get-user", "GET /v1/users/{id}", Tag, "Get a user (scope admin)", s.getUser)
	rest.Route(s.api, "change-user", "PATCH /v1/users/{id}", Tag,
		"Change a user's password or role (scope admin)", s.changeUser)
	rest.Route(s.api, "remove-user", "DELETE /v1/users/{id}", Tag,
		"Remove a user (scope admin), whose tokens are refused within ten seconds", s.removeUser)
}

func (s *Server) listUsers(ctx context.Context, _ *struct{}) (*rest.Output[UserList], error) {
	all, err := s.store.Users(ctx, middleware.RequestOf(ctx).Tenant, listedUsers)
	return rest.OK(UserList{rest.Docs(all, userDoc)}), err
}

// mayGive refuses a role that opens more than the request's own scopes do.
func mayGive(ctx context.Context, role string) error {
	for _, scope := range (models.User{Role: role}).Scopes() {
		if scope != models.ScopeSandboxes && !models.Opens(middleware.RequestOf(ctx).Scopes, scope) {
			return problem.Forbidden(scope)
		}
	}
	return nil
}

func (s *Server) createUser(ctx context.Context, in *newUserInput) (*rest.Output[User], error) {
	role := in.Body.Role
	if role == "" {
		role = models.RoleMember
	}
	if err := mayGive(ctx, role); err != nil {
		return nil, err
	}
	hash, err := newPassword("body.password", in.Body.Password)
	if err != nil {
		return nil, err
	}
	u, err := s.store.CreateUser(ctx, middleware.RequestOf(ctx).Tenant, in.Body.Name, hash, role)
	middleware.RequestOf(ctx).Target = u.ID
	return rest.OK(userDoc(u)), err
}

// theirs returns a user whom the request may manage: nobody manages who may do more.
func (s *Server) theirs(ctx context.Context, id string) (models.User, error) {
	u, err := s.store.User(ctx, middleware.RequestOf(ctx).Tenant, id)
	if err != nil {
		return u, err
	}
	return u, mayGive(ctx, u.Role)
}

func (s *Server) getUser(ctx context.Context, in *userInput) (*rest.Output[User], error) {
	u, err := s.store.User(ctx, middleware.RequestOf(ctx).Tenant, in.ID)
	return rest.OK(userDoc(u)), err
}

func (s *Server) changeUser(ctx context.Context, in *changeUserInput) (*rest.Output[User], error) {
	to := models.UserChange{Role: in.Body.Role, Limits: in.Body.ceilings()}
	if in.Body.Password == "" && to.Role == "" && len(to.Limits) == 0 {
		return nil, problem.Invalid("body", "changes nothing; give a password, a role or a limit")
	}
	if _, err := s.theirs(ctx, in.ID); err != nil {
		return nil, err
	}
	if to.Role != "" {
		if err := mayGive(ctx, to.Role); err != nil {
			return nil, err
		}
	}
	if in.Body.Password != "" {
		hash, err := newPassword("body.password", in.Body.Password)
		if err != nil {
			return nil, err
		}
		to.PasswordHash = hash
	}
	u, err := s.store.ChangeUser(ctx, middleware.RequestOf(ctx).Tenant, in.ID, to)
	return rest.OK(userDoc(u)), err
}

func (s *Server) removeUser(ctx context.Context, in *userInput) (*rest.Output[User], error) {
	if _, err := s.theirs(ctx, in.ID); err != nil {
		return nil, err
	}
	u, err := s.store.RemoveUser(ctx, middleware.RequestOf(ctx).Tenant, in.ID)
	return rest.OK(userDoc(u)), err
}
