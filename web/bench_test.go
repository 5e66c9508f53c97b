package web_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"sandyard/dev/abbench"
	"sandyard/dev/testenv"
)

// benchSandboxes is over how many sandboxes the submissions spread.
const benchSandboxes = 64

// BenchmarkSubmit measures what a client waits for the answer to POST …/exec. Nothing works the jobs off, so all but a
// tenant's window of them stay in PostgreSQL. The baselines are a Fiber route that only enqueues in Asynq with its
// defaults (nothing but Redis knows of the job, no key, no check of the body), and one that also inserts a row with
// GORM. The clients share the machine with everything they measure.
func BenchmarkSubmit(b *testing.B) {
	baselines := []struct {
		name  string
		start func(*testing.B) func(i int) *fasthttp.Request
	}{{"asynq", benchAsynq}, {"asynq and gorm", benchAsynqGORM}}
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("%d clients", clients), func(b *testing.B) {
			for _, baseline := range baselines {
				b.Run("vs "+baseline.name, func(b *testing.B) {
					client := &fasthttp.Client{MaxConnsPerHost: clients}
					defer client.CloseIdleConnections()
					load := abbench.Load{Callers: clients, Rounds: 3, Turn: time.Second}
					load.Run(b, "requests/s", accepted(client, benchSandyard(b)), accepted(client, baseline.start(b)))
				})
			}
		})
	}
}

// accepted sends a request and wants 202.
func accepted(client *fasthttp.Client, request func(int) *fasthttp.Request) func(int) error {
	return func(i int) error {
		req, res := request(i), fasthttp.AcquireResponse()
		defer fasthttp.ReleaseRequest(req)
		defer fasthttp.ReleaseResponse(res)
		if err := client.Do(req, res); err != nil {
			return err
		}
		if res.StatusCode() != fiber.StatusAccepted {
			return fmt.Errorf("status %d: %s", res.StatusCode(), res.Body())
		}
		return nil
	}
}

const benchBody = `{"command":"python3 main.py --input data.csv","cwd":"/workspace","env":{"MODE":"fast"},"timeout_seconds":60}`

func benchRequest(url, key string) *fasthttp.Request {
	req := fasthttp.AcquireRequest()
	req.SetRequestURI(url)
	req.Header.SetMethod(fiber.MethodPost)
	req.Header.SetContentType(fiber.MIMEApplicationJSON)
	req.Header.Set(fiber.HeaderAuthorization, "Bearer "+key)
	req.SetBodyString(benchBody)
	return req
}

func benchSandyard(b *testing.B) func(int) *fasthttp.Request {
	r := newRig(b)
	conn := must(pgx.Connect(context.Background(), r.dsn))(b)
	must(conn.Exec(context.Background(), "UPDATE tenants SET max_queued = 100000000"))(b)
	check(b, conn.Close(context.Background()))
	var urls []string
	for range benchSandboxes {
		urls = append(urls, r.url+"/v1/sandboxes/"+r.sandbox(map[string]any{})+"/exec")
	}
	return func(i int) *fasthttp.Request { return benchRequest(urls[i%len(urls)], r.key) }
}

func benchAsynq(b *testing.B) func(int) *fasthttp.Request {
	return benchBare(b, func(c *fiber.Ctx, queue *asynq.Client) error {
		return enqueue(queue, uuid.NewString(), c.Body())
	})
}

func benchAsynqGORM(b *testing.B) func(int) *fasthttp.Request {
	type task struct {
		ID, State, Args string
		CreatedAt       time.Time
	}
	db := must(gorm.Open(postgres.Open(testenv.Database(b)), &gorm.Config{Logger: logger.Discard}))(b)
	pool := must(db.DB())(b)
	pool.SetMaxOpenConns(16)
	pool.SetMaxIdleConns(16)
	b.Cleanup(func() { pool.Close() })
	check(b, db.AutoMigrate(&task{}))
	return benchBare(b, func(c *fiber.Ctx, queue *asynq.Client) error {
		row := task{ID: uuid.NewString(), State: "queued", Args: string(c.Body())}
		if err := db.Create(&row).Error; err != nil {
			return err
		}
		return enqueue(queue, row.ID, []byte(row.ID))
	})
}

func enqueue(queue *asynq.Client, id string, payload []byte) error {
	_, err := queue.Enqueue(asynq.NewTask("exec", payload), asynq.TaskID(id))
	return err
}

func benchBare(b *testing.B, handle func(*fiber.Ctx, *asynq.Client) error) func(int) *fasthttp.Request {
	network, addr, db := testenv.Redis(b)
	rdb := redis.NewClient(&redis.Options{Network: network, Addr: addr, DB: db})
	b.Cleanup(func() { rdb.Close() })
	queue := asynq.NewClientFromRedisClient(rdb)
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/exec", func(c *fiber.Ctx) error {
		if err := handle(c, queue); err != nil {
			return err
		}
		return c.Status(fiber.StatusAccepted).JSON(fiber.Map{"state": "queued"})
	})
	l := must(net.Listen("tcp", "127.0.0.1:0"))(b)
	done := make(chan error, 1)
	go func() { done <- app.Listener(l) }()
	b.Cleanup(func() {
		check(b, errors.Join(app.Shutdown(), <-done))
	})
	url := "http://" + l.Addr().String() + "/exec"
	return func(int) *fasthttp.Request { return benchRequest(url, "none") }
}
