"""The command line. Heavy modules are imported inside the commands: `agentgym --help` must not wait for torch."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import AgentGymError, ConfigError, did_you_mean

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def _split(args: list[str]) -> tuple[list[str], list[str]]:
    """Tell files from overrides (a=b)."""
    files = [a for a in args if "=" not in a or Path(a).is_file()]
    return files, [a for a in args if a not in files]


@app.command()
def run(
    args: Annotated[list[str], typer.Argument(metavar="TASK.yaml [RECIPE.yaml ...] [a.b=value ...]")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the plan: parts, parameters, memory, and what could not work; start nothing")
    ] = False,
) -> None:
    """Train: a task set, optionally recipes, optionally overrides, merged left to right. Several processes: start it with torchrun."""
    from .config import load

    files, overrides = _split(args)
    if not files:
        raise ConfigError("which task set? For example: agentgym run tasks/alfworld.yaml")
    config = load(files, overrides)
    if dry_run:
        from agentgym.trainers.plan import plan

        found = plan(config)
        print(found.text())
        raise typer.Exit(1 if found.refused else 0)
    if not config.run.dir:
        config.run.dir = str(_free_dir(Path("runs") / Path(files[0]).stem))
    with _interruptible():
        from agentgym.trainers.train import train

        train(config)


def _free_dir(base: Path) -> Path:
    import datetime

    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return base.with_name(f"{base.name}-{stamp}")


@app.command()
def resume(run_dir: Annotated[Path, typer.Argument(help="the folder of an interrupted run")]) -> None:
    """Go on with an interrupted run, to the same numbers."""
    with _interruptible():
        from agentgym.trainers.train import resume as go_on

        go_on(run_dir)


@app.command()
def eval(
    checkpoint: Annotated[str, typer.Argument(help="a checkpoint or run folder, a model name, an endpoint (http://…), or a policy (expert, random)")],
    args: Annotated[list[str], typer.Argument(metavar="TASK.yaml [a.b=value ...]")],
    k: Annotated[int, typer.Option(help="episodes per task")] = 1,
    split: Annotated[str | None, typer.Option(help="instead of the task set's held-out split")] = None,
    tasks: Annotated[int | None, typer.Option(help="only this many tasks, drawn at random but always the same (default: the whole split)")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for episodes.jsonl and results.json; an interrupted evaluation there goes on")] = None,
    model: Annotated[str | None, typer.Option(help="the model's name at the endpoint")] = None,
) -> None:
    """Evaluate on held-out episodes: success with intervals, pass@k, per task type."""
    from .config import load

    files, overrides = _split(args)
    if not files:
        raise ConfigError("which task set? For example: agentgym eval runs/my-run tasks/alfworld.yaml")
    config = load(files, overrides)
    with _interruptible(f"The finished episodes are in {out}; the same command goes on there." if out else "Nothing was kept: there was no --out."):
        from agentgym.trainers.panel import evaluate_command

        evaluate_command(checkpoint, config, k=k, split=split, n_tasks=tasks, out=out, model=model)


@app.command()
def pivots(
    args: Annotated[list[str], typer.Argument(metavar="TASK.yaml [RECIPE.yaml ...] [a.b=value ...]")],
    trajectories: Annotated[list[str], typer.Option(help="stored trajectories of the training split (a file, a quoted pattern), or: expert")],
    policy: Annotated[str, typer.Option(help="who is profiled: a checkpoint or run folder, a model name, an endpoint (http://…)")],
    group: Annotated[int, typer.Option(help="local rollouts per decision")] = 8,
    max_mean: Annotated[float, typer.Option(help="keep decisions whose mean reward is below this")] = 0.6,
    out: Annotated[Path, typer.Option(help="the data set; all profiles go beside it, and an interrupted call goes on there")] = Path("pivots.jsonl"),
    reward: Annotated[list[str] | None, typer.Option(help="what scores a rollout (default: the rewards of the recipe)")] = None,
    tasks: Annotated[int | None, typer.Option(help="where the trajectories are played now: only this many tasks")] = None,
    model: Annotated[str | None, typer.Option(help="the model's name at the endpoint")] = None,
) -> None:
    """Find the decisions of an expert that are worth training on (PivotRL): the policy's reward varies there, and is not high yet."""
    from .config import load

    files, overrides = _split(args)
    if not files:
        raise ConfigError("which task set? For example: agentgym pivots tasks/alfworld.yaml pivotrl --trajectories expert --policy runs/my-run")
    config = load(files, overrides)
    with _interruptible(f"What was profiled is kept beside {out}; the same command goes on there."):
        from agentgym.trainers.pivots import pivots_command

        pivots_command(
            config, trajectories=trajectories, target=policy, group=group, max_mean=max_mean, out=out, rewards=reward or (), tasks=tasks, model=model
        )


@app.command()
def compare(a: Path, b: Path) -> None:
    """Compare two evaluations of the same panel: paired bootstrap of the difference b − a."""
    from rich.console import Console

    from .evaluate import compare as compare_results

    Console().print(compare_results(a, b))


@app.command()
def export(
    source: Annotated[Path, typer.Argument(help="a run of several devices (its newest checkpoint), or one of its checkpoints")],
    folder: Annotated[Path | None, typer.Argument(help="where to; without it, beside the checkpoint's shards, where `eval` finds it")] = None,
) -> None:
    """Put the shards of a checkpoint together: one model folder in Hugging Face format."""
    from agentgym.trainers.shard_files import export_command

    print(export_command(source, folder))


@app.command()
def check(
    env: Annotated[str, typer.Argument(help="an environment: a name, module:Class or ./file.py:Class")],
    oracle: Annotated[int, typer.Option(help="alfworld only: play this many games on the real engine too and compare every step")] = 0,
    data: Annotated[str | None, typer.Option(help="alfworld: folder that holds json_2.1.1 (default: $ALFWORLD_DATA, else generated)")] = None,
    dialect: Annotated[str, typer.Option(help="alfworld: move or put")] = "move",
    tasks: Annotated[str | None, typer.Option(help="swe only: check the tasks of a file (hub:owner/name, generated): own fixes must pass")] = None,
    split: Annotated[str | None, typer.Option(help="swe: only tasks of this split")] = None,
    limit: Annotated[int | None, typer.Option(help="swe: only the first so many")] = None,
    sandbox: Annotated[str, typer.Option(help="swe: auto, docker, bubblewrap or none")] = "auto",
    workers: Annotated[int, typer.Option(help="swe: tasks at a time")] = 1,
    seed: int = 0,
) -> None:
    """Check an environment against the contract, and print what to mend."""
    if tasks is not None:
        if env != "swe":
            raise ConfigError(f"--tasks is for swe, whose tasks can be tried; got {env!r}")
        from agentgym.envs.swe.validate import main as validate_tasks

        raise typer.Exit(validate_tasks(tasks, split, sandbox, workers, limit))
    if oracle:
        from .registry import find

        if env != "alfworld":
            raise ConfigError(f"--oracle is for alfworld, which has a second engine to compare with; got {env!r}")
        find("env", env)
        from agentgym.envs.alfworld.oracle import main as compare_engines

        if dialect not in ("move", "put"):
            raise ConfigError(f"--dialect is move or put; got {dialect!r}")
        raise typer.Exit(compare_engines(oracle, data, dialect, seed))  # type: ignore[arg-type]
    from rich.console import Console

    from .check import check_env, render

    problems = check_env(env, seed=seed)
    Console().print(render(problems))
    raise typer.Exit(1 if problems else 0)


@app.command()
def play(
    env: Annotated[str, typer.Argument(help="an environment: a name, module:Class or ./file.py:Class")],
    options: Annotated[list[str] | None, typer.Argument(metavar="[option=value ...]", help="options of the environment, e.g. split=test")] = None,
    task: Annotated[str | None, typer.Option(help="the id of the task (default: one drawn by the seed)")] = None,
    seed: Annotated[int | None, typer.Option(help="default: another one each time")] = None,
) -> None:
    """Play an environment yourself, in the terminal."""
    from .play import parse_options
    from .play import play as play_one

    with _interruptible():
        play_one(env, parse_options(options or []), task=task, seed=seed)


init = typer.Typer(no_args_is_help=True, help="Write the beginnings of something of your own.")
app.add_typer(init, name="init")


@init.command("env")
def init_env(
    name: Annotated[str, typer.Argument(help="its name; the folder is called so")],
    folder: Annotated[Path | None, typer.Option("--dir", help="write there instead")] = None,
) -> None:
    """Write a working environment with its tasks, its task set and its test."""
    from .scaffold import class_name
    from .scaffold import init_env as write

    files = write(name, folder)
    env, _, task_set, test = files
    print("wrote " + ", ".join(map(str, files)))
    where = f"{env}:{class_name(name)}"
    for command in (f"agentgym check {where}", f"agentgym play {where}", f"agentgym run {task_set}", f"pytest {test}"):
        print(f"  {command}")


serve = typer.Typer(no_args_is_help=True, help="Start a server.")
app.add_typer(serve, name="serve")


@serve.command("search")
def serve_search(
    corpus: Annotated[str, typer.Option(help="JSON lines, JSON or parquet with id and contents; 'factbook': the embedded default")],
    host: str = "127.0.0.1",
    port: int = 8000,
    kind: Annotated[str, typer.Option(help="bm25 or dense")] = "bm25",
    model: Annotated[str | None, typer.Option(help="dense: the encoder's name or folder")] = None,
    topk: Annotated[int, typer.Option(help="documents per query where a request does not say")] = 3,
    workers: Annotated[int, typer.Option(help="processes; they share the index's memory")] = 1,
) -> None:
    """Serve a corpus: the routes of Search-R1, verl-agent and FlashRAG."""
    from agentgym.envs.searchqa.server import serve as serve_corpus

    serve_corpus(corpus, host=host, port=port, kind=kind, model=model, topk=topk, workers=workers)


@serve.command("webshop")
def serve_webshop(
    data: Annotated[str | None, typer.Option(help="folder of the official files; without it, generated products")] = None,
    products: Annotated[int | None, typer.Option(help="how many products")] = None,
    size: Annotated[str | None, typer.Option(help="generated products: mini or full")] = None,
    goals: Annotated[str | None, typer.Option(help="official files: synthetic, human or both")] = None,
    split: Annotated[str, typer.Option(help="all, train, eval or test")] = "all",
    host: str = "127.0.0.1",
    port: int = 3000,
    images: Annotated[bool, typer.Option(help="let browsers load the products' pictures from their shops")] = False,
) -> None:
    """Serve WebShop to people and browsers: the pages and addresses of the original."""
    from agentgym.envs.webshop.server import serve as serve_shop

    serve_shop(data=data, products=products, size=size, goals=goals, split=split, host=host, port=port, images=images)  # type: ignore[arg-type]


@serve.command("vllm")
def serve_vllm(
    model: Annotated[str, typer.Argument(help="a model's folder, a run's folder (its newest checkpoint), or a name on the hub")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[name=value ...]", help="further engine arguments of vLLM")] = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    n: Annotated[int, typer.Option("-n", "--servers", help="servers, on ports from --port on")] = 1,
    dtype: Annotated[str, typer.Option(help="auto: what the model's folder says")] = "auto",
    context: Annotated[int, typer.Option(help="longest context in tokens (0: the model's)")] = 0,
    kv_gb: Annotated[float, typer.Option(help="GB for the key-value cache (0: 1 on a CPU, what --gpu-memory leaves on a GPU)")] = 0.0,
    gpu_memory: Annotated[float, typer.Option(help="share of each GPU's memory")] = 0.9,
    tensor_parallel: Annotated[int, typer.Option(help="GPUs per server")] = 1,
    push: Annotated[str, typer.Option(help="how weights will arrive: path, nccl or ipc")] = "path",
    lora_rank: Annotated[int, typer.Option(help="adapters up to this rank will be pushed (0: none)")] = 0,
    threads: Annotated[int, typer.Option(help="threads per server on a CPU")] = 1,
) -> None:
    """Serve a model with vLLM, for policy vllm: a trainer pushes its weights to these servers while they run."""
    from .play import parse_options

    if push not in ("path", "nccl", "ipc"):
        raise ConfigError(f"--push is path, nccl or ipc; got {push!r}")
    settings = {
        "dtype": dtype,
        "max_context": context,
        "kv_gb": kv_gb,
        "gpu_memory": gpu_memory,
        "tensor_parallel": tensor_parallel,
        "push": push,
        "lora_rank": lora_rank,
        "extra": parse_options(args or []),
    }
    with _interruptible("The servers are ended."):
        from agentgym.trainers.engine.serve import serve as serve_model
        from agentgym.trainers.panel import model_folder

        serve_model(model_folder(model), settings, host=host, port=port, n=n, threads=threads, say=_say)


tasks = typer.Typer(no_args_is_help=True, help="Make the task sets that are built, and what they need.")
app.add_typer(tasks, name="tasks")


@tasks.command("nouns")
def tasks_nouns(
    data: Annotated[str, typer.Option(help="folder of WebShop's official files")],
    products: Annotated[int | None, typer.Option(help="only the first so many")] = None,
) -> None:
    """Tag the titles of WebShop's products with spaCy, once: their nouns are then exact on this machine, with spaCy or without."""
    from agentgym.envs.webshop.catalogue import open_files
    from agentgym.envs.webshop.nouns import Nouns

    catalogue = open_files(Path(data).expanduser(), products)
    tagged = Nouns().build([p.name for p in catalogue])
    print(f"webshop: {tagged:,} titles tagged now, {len(catalogue) - tagged:,} were known or repeat one")


build = typer.Typer(no_args_is_help=True, help="Make a task set.")
tasks.add_typer(build, name="build")


@build.command("swe")
def build_swe(
    out: Annotated[Path, typer.Option(help="folder for the task set and the journal; an interrupted build goes on there")] = Path("swe-tasks"),
    package: Annotated[list[str] | None, typer.Option(help="only this package; may be given several times")] = None,
    per_package: Annotated[int, typer.Option(help="tasks of each package, at most")] = 32,
    workers: Annotated[int, typer.Option(help="runs of tests at a time")] = 1,
    sandbox: Annotated[str, typer.Option(help="where the tests run: auto, docker, bubblewrap, or none (plain processes of this machine)")] = "auto",
    seed: Annotated[int, typer.Option(help="which bugs are tried, in which order")] = 0,
) -> None:
    """Break pinned packages by small changes, and keep the bugs that some tests notice: repair tasks."""
    from agentgym.envs.swe.build import build as build_tasks
    from agentgym.envs.swe.build_sandbox import runner

    with _interruptible(f"What was tried is kept in {out}; the same command goes on there."):
        print(build_tasks(out, packages=package, per_package=per_package, workers=workers, seed=seed, run=runner(sandbox)))
    print(f"  agentgym check swe --tasks {out}/tasks.jsonl.gz\n  agentgym run tasks/swe.yaml env.tasks={out}/tasks.jsonl.gz")


@app.command("list")
def list_(kind: Annotated[str | None, typer.Argument(help="only this kind")] = None) -> None:
    """List every plug-in kind and name with one line each."""
    from rich.console import Console

    from .registry import KINDS, names

    console = Console()
    for k in [kind] if kind else KINDS:
        found = names(k)
        if found:
            console.print(f"[bold]{k}[/bold]")
            for name, line in sorted(found.items()):
                console.print(f"  {name:<16} {line}", markup=False, highlight=False)


@contextlib.contextmanager
def _interruptible(what: str = "") -> Iterator[None]:
    """Say in one line where an interrupted command stands; the exit code is the shell's for Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt as e:
        _say(" ".join(["interrupted.", *_notes(e), what]).rstrip())
        raise typer.Exit(130) from None


def main() -> None:
    """Entry point: a known error is one clear message, never a traceback."""
    try:
        code = app(prog_name="agentgym", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)  # without standalone_mode, typer returns an Exit's code
    except (typer.Abort, KeyboardInterrupt):
        _say("interrupted")
        sys.exit(130)
    except AgentGymError as e:
        _say("\n".join([f"error: {e}", *_notes(e)]))
        sys.exit(1)
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
        _say("\n".join([f"error: the disk is full ({e.filename or 'while writing'}). Free some space first.", *_notes(e)]))
        sys.exit(1)
    except Exception as e:
        if not hasattr(e, "format_message"):  # click's own errors, whichever module typer keeps them in
            raise
        _say(_usage(e))
        sys.exit(2)


def _usage(e: Any) -> str:
    """Return what a wrong command line is told; the bare `agentgym` gets the help."""
    if type(e).__name__ == "NoArgsIsHelpError":
        return str(e.format_message())
    words = [str(c.name or c.callback.__name__) for c in app.registered_commands if c.callback]  # type: ignore[attr-defined]
    words += [str(g.name) for g in app.registered_groups]
    got = next((a for a in sys.argv[1:] if not a.startswith("-")), "")
    if got not in words:
        return f"error: there is no command {got!r}.{did_you_mean(got, words)} Commands: {', '.join(words)}. See `agentgym --help`."
    return f"error: {str(e.format_message()).rstrip('.')}. See `agentgym {got} --help`."


def _notes(e: BaseException) -> list[str]:
    return list(getattr(e, "__notes__", []))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
