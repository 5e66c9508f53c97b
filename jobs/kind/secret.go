package kind

import (
	"regexp"
)

// maxSecretsUsed bounds the secrets of one job.
const maxSecretsUsed = 64

// SecretName is the form of names of secrets.
var SecretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,62}$`)

// SecretEnv is environment variables whose values are secrets.
type SecretEnv struct {
	Secrets map[string]string `json:"secrets,omitempty" doc:"Environment variables whose values are secrets of the tenant: the variable's name, then the secret's name. Values are in no row, log or answer, unless the program prints them"`
}

// Check says what is wrong with the variables of a command that has env, too.
func (e SecretEnv) Check(env map[string]string) error {
	if len(e.Secrets) > maxSecretsUsed {
		return Invalid("secrets", "has %d variables; the limit is %d", len(e.Secrets), maxSecretsUsed)
	}
	for variable, name := range e.Secrets {
		if err := CheckEnv("secrets", map[string]string{variable: ""}); err != nil {
			return err
		}
		if _, twice := env[variable]; twice {
			return Invalid("secrets."+variable, "is also in env; name the variable once")
		}
		if !SecretName.MatchString(name) {
			return Invalid(
				"secrets."+variable,
				"%.80q is not a valid name of a secret; use up to 63 letters, digits, _, . and -",
				name,
			)
		}
	}
	return nil
}

// SecretNames implements UsesSecrets.
func (e SecretEnv) SecretNames() map[string]string { return e.Secrets }

// UsesSecrets is a kind of job that may name secrets.
type UsesSecrets interface{ SecretNames() map[string]string }
