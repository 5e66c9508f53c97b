// Package imagepolicy decides which images a tenant may make sandboxes from.
package imagepolicy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sandyard/imageref"
	"sandyard/jobs/kind"
	"sandyard/models"
)

// buildRepository holds the images of all builds. Which of them a tenant may use is written in the database alone.
const buildRepository = "sandyard/build"

// ImageOf names what a build makes. It is another name for every build, so no pool can mistake one for the next.
func ImageOf(build string) string { return buildRepository + ":" + build }

// Policy decides which images a tenant may name.
type Policy struct {
	store     *models.Store
	templates map[string]string // what the configuration declares: name → image
	allowed   imageref.Globs
}

// New returns the images of templates that the configuration declares (name → image), and what the operator allows.
func New(store *models.Store, templates map[string]string, allowed imageref.Globs) Policy {
	return Policy{store: store, templates: templates, allowed: allowed}
}

// Refusal says why a tenant may not use the image; an empty text means that it may. A tenant may use images of shared
// templates, images that its own or shared builds have made, and what the operator allows.
func (i Policy) Refusal(ctx context.Context, tenantID, image string) (why string, err error) {
	ref, err := imageref.Parse(image)
	if err != nil {
		return err.Error(), nil
	}
	if ref.Repository() == buildRepository {
		if build, ok := strings.CutPrefix(ref.String(), buildRepository+":"); ok {
			if usable, err := i.store.MayUseBuild(ctx, tenantID, build, ImageOf(build)); usable || err != nil {
				return "", err
			}
		}
		return fmt.Sprintf(
			"%.200q is not the image of one of your builds; list them with GET /v1/templates/NAME/builds",
			ref,
		), nil
	}
	if i.allowed.Match(ref) {
		return "", nil
	}
	shared, err := i.shared(ctx)
	if err != nil || ref.Among(shared) {
		return "", err
	}
	return fmt.Sprintf(
		"%.200q is not allowed on this server; use a template, a template's image, an image of one of your builds, or an "+
			"image that "+
			"the operator allows in SANDBOX_IMAGES (%s)",
		ref,
		i.offer(shared),
	), nil
}

// shared lists the images of templates that every tenant sees.
func (i Policy) shared(ctx context.Context) ([]string, error) {
	list, err := i.store.SharedImages(ctx)
	return slices.AppendSeq(list, maps.Values(i.templates)), err
}

// namedImages is how many an error names.
const namedImages = 20

// offer names what is allowed, as far as it fits into an error.
func (i Policy) offer(shared []string) string {
	all := slices.Concat(i.allowed, shared)
	all = slices.DeleteFunc(all, func(name string) bool { return strings.HasPrefix(name, buildRepository+":") })
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 {
		return "none at present"
	}
	more := ""
	if len(all) > namedImages {
		all, more = all[:namedImages], ", …"
	}
	return fmt.Sprintf("allowed now: %.1000s%s", strings.Join(all, ", "), more)
}

// Check refuses an image that a request of the tenant may not name, as an *InvalidError.
func (i Policy) Check(ctx context.Context, tenantID, field, image string) error {
	why, err := i.Refusal(ctx, tenantID, image)
	if err == nil && why != "" {
		return kind.Invalid(field, "%s", why)
	}
	return err
}
