package web

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/gofiber/fiber/v2"
)

// The reference page with its renderer, which needs no other host, and the pages for agents.
//
//go:embed docs/index.html docs/redoc.standalone.js docs/SKILL.md docs/llms.txt
var docs embed.FS

// docsPolicy lets the page load nothing from elsewhere.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; " +
	"connect-src 'self'; font-src 'self' data:; worker-src blob:; base-uri 'none'; frame-ancestors 'none'"

// addDocs publishes the API's description; it comes after every other operation. The description is written when it is
// first asked for: that takes longer than all else that New does.
func (s *Server) addDocs() error {
	document := s.v1.Document()
	s.publish("/openapi.json", "application/json", "no-cache", func() ([]byte, error) { return json.Marshal(document) })
	s.publish("/openapi.yaml", "application/yaml", "no-cache", document.YAML)
	for name, d := range s.contracts {
		s.publish("/openapi/"+name+".json", "application/json", "no-cache", func() ([]byte, error) { return json.Marshal(d) })
	}
	for _, file := range []struct{ path, name, media, caching string }{
		{"/docs", "index.html", fiber.MIMETextHTMLCharsetUTF8, "no-cache"},
		{"/docs/redoc.standalone.js", "redoc.standalone.js", "text/javascript; charset=utf-8", "max-age=86400"},
		{"/llms.txt", "llms.txt", fiber.MIMETextPlainCharsetUTF8, "no-cache"},
		{"/skill.md", "SKILL.md", "text/markdown; charset=utf-8", "no-cache"},
	} {
		content, err := docs.ReadFile("docs/" + file.name)
		if err != nil {
			return fmt.Errorf("read the page %s: %w", file.path, err)
		}
		s.publish(file.path, file.media, file.caching, func() ([]byte, error) { return content, nil })
	}
	s.app.Get("/", func(c *fiber.Ctx) error { return c.Redirect("/docs", fiber.StatusFound) })
	s.app.Get("/favicon.ico", func(c *fiber.Ctx) error { // browsers ask for it unasked
		c.Set(fiber.HeaderCacheControl, "max-age=86400")
		return c.SendStatus(fiber.StatusNoContent)
	})
	return nil
}

// publish answers with what write returns, which is called once, at the first request.
func (s *Server) publish(path, media, caching string, write func() ([]byte, error)) {
	content := sync.OnceValues(func() ([]byte, error) {
		raw, err := write()
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		return raw, nil
	})
	zipped := sync.OnceValues(func() ([]byte, error) {
		raw, err := content()
		return gzipOf(raw), err
	})
	s.app.Get(path, func(c *fiber.Ctx) error {
		zip := c.Get(fiber.HeaderAcceptEncoding) != "" && c.AcceptsEncodings("gzip") == "gzip"
		body := content
		if zip {
			body = zipped
		}
		raw, err := body()
		if err != nil {
			return err
		}
		c.Set(fiber.HeaderContentType, media)
		c.Set(fiber.HeaderCacheControl, caching)
		c.Set(fiber.HeaderContentSecurityPolicy, docsPolicy)
		c.Set(fiber.HeaderVary, fiber.HeaderAcceptEncoding)
		if zip {
			c.Set(fiber.HeaderContentEncoding, "gzip")
		}
		return c.Send(raw)
	})
}

// gzipOf compresses what is sent again and again.
func gzipOf(content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(content) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}
