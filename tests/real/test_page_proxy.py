"""The page behind nginx, by the example of the documentation."""

import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.page.doors import Doors
from fakes.authority import Authority
from fakes.cli_admin import FakeAdmin
from fakes.page_server import UnixConnection, ask, served_page
from fakes.waits import wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("nginx") is None,
        reason="needs root and nginx (apt: nginx-light)",
    ),
]
_HEADER = "X-Remote-User"


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Return a folder with a path short enough for a socket in it, which everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_nginx_of_the_documentation_names_who_asks_and_nobody_else_can(short_folder: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/page.md").read_text(encoding="utf-8")
    server = text.partition("```nginx\n")[2].partition("```")[0]
    Authority(short_folder).issue("fleet.example", "page", "fleet")
    (short_folder / "htpasswd").write_text("ann:{PLAIN}secret\n")
    for written, here in (
        ("/etc/nginx/tls/fleet.pem", str(short_folder / "fleet.pem")),
        ("/etc/nginx/tls/fleet.key", str(short_folder / "fleet.key")),
        ("/etc/nginx/everstep.htpasswd", str(short_folder / "htpasswd")),
        ("/run/everstep-page/page.sock", str(short_folder / "page.sock")),
        ("listen 443 ssl", f"listen unix:{short_folder}/nginx.sock ssl"),
    ):
        assert written in server
        server = server.replace(written, here)
    conf = short_folder / "nginx.conf"
    conf.write_text(
        f"user www-data;\npid {short_folder}/pid;\nerror_log {short_folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log {short_folder}/access.log;\n{server}\n}}\n"
    )
    doors = Doors(
        listen=f"unix:{short_folder / 'page.sock'}",
        names=("fleet.example",),
        user_header=_HEADER,
        proxy_user="www-data",
        operators=frozenset({"ann"}),
    )
    with served_page(doors, FakeAdmin()):
        nginx = subprocess.Popen(["nginx", "-g", "daemon off;", "-c", str(conf)])
        try:
            wait_until((short_folder / "nginx.sock").exists)
            context = ssl._create_unverified_context()
            basic = {"Authorization": "Basic YW5uOnNlY3JldA==", "Host": "fleet.example"}
            socket = short_folder / "nginx.sock"
            for forged in ({}, {_HEADER: "root"}):
                told = ask(UnixConnection(socket, context), headers={**basic, **forged})
                assert "ann, operator" in told.text
            unknown = {"Host": "fleet.example", _HEADER: "ann"}
            assert ask(UnixConnection(socket, context), headers=unknown).code == 401
        finally:
            nginx.terminate()
            nginx.wait(20)
