#!/usr/bin/env python3
"""Checks docker/compose.yaml against the files it mounts: names, addresses, ports. No container is started.

    docker/check_compose.py        needs PyYAML and Python 3.11; ends with 1 and a line for each finding
"""

import ipaddress
import pathlib
import sys
import tomllib

import yaml

DOCKER = pathlib.Path(__file__).resolve().parent
findings = []


def check(holds, what):
    if not holds:
        findings.append(what)


def host_port(address):
    host, _, port = address.rpartition(":")
    return host, int(port)


def mounts(service):
    """Pairs of a file on this machine and its place in the container."""
    for volume in service.get("volumes", []):
        here, there, *_ = volume.split(":")
        yield (DOCKER / here).resolve(), there


def configuration(name, service):
    """The configuration of a sidecar, read at the place that its command names."""
    command = service["command"]
    check(command[:2] == ["run", "-c"], f"{name}: command {command}")
    found = [here for here, there in mounts(service) if there == command[2]]
    check(len(found) == 1 and found[0].is_file(), f"{name}: {command[2]} is not mounted from a file")
    return tomllib.loads(found[0].read_text()) if found and found[0].is_file() else None


def check_sidecar(name, service, services, owners):
    """`owners`: which service has which address. Gives the service beside it, and its configuration."""
    beside = service.get("network_mode", "").removeprefix("service:")
    check(beside in services, f"{name}: shares the network of {beside!r}, which is no service")
    check(service.get("pid") == f"service:{beside}", f"{name}: does not share the PID namespace of {beside!r}")
    check("ports" not in service and "networks" not in service, f"{name}: has a network beside the shared one")
    config = configuration(name, service)
    if config is None:
        return beside, None
    networks = [ipaddress.ip_network(n) for inbound in config["inbound"] for n in inbound["allow"]]
    for address in owners:
        check(any(ipaddress.ip_address(address) in n for n in networks), f"{name}: {address} is not allowed to link")
    for outbound in config["outbound"]:
        for endpoint in outbound["endpoints"]:
            host, _ = host_port(endpoint)
            check(owners.get(host) == outbound["name"], f"{name}: {endpoint} is not {outbound['name']!r} of this file")
            check(host not in owners or owners[host] != beside, f"{name}: leads to the service beside it")
    return beside, config


def check_scrapes(services, configs):
    path = dict((there, here) for here, there in mounts(services["prometheus"]))["/etc/prometheus/prometheus.yml"]
    jobs = yaml.safe_load(path.read_text())["scrape_configs"]
    targets = [t for job in jobs for s in job["static_configs"] for t in s["targets"]]
    public = {beside: host_port(config["admin"]["public"])[1] for beside, config in configs.items() if config}
    check(sorted(targets) == sorted(f"{name}:{port}" for name, port in public.items()), f"prometheus scrapes {targets}")


def main():
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    services = compose["services"]
    sidecars = {name: s for name, s in services.items() if s.get("image") == "sidebeat"}
    check(len(sidecars) >= 2, "fewer than two sidecars")
    owners = {s["networks"]["default"]["ipv4_address"]: name for name, s in services.items() if "networks" in s}
    subnet = ipaddress.ip_network(compose["networks"]["default"]["ipam"]["config"][0]["subnet"])
    for address, name in owners.items():
        check(ipaddress.ip_address(address) in subnet, f"{name}: {address} is not in {subnet}")
    for name, service in services.items():
        check("image" in service, f"{name}: no image")
        for needed in service.get("depends_on", []):
            check(needed in services, f"{name}: depends on {needed!r}, which is no service")
        for here, _ in mounts(service):
            check(here.is_file(), f"{name}: mounts {here}, which is no file")
    configs = {}
    for name, service in sidecars.items():
        build = service["build"]
        check((DOCKER / build["context"] / build["dockerfile"]).is_file(), f"{name}: no such Dockerfile")
        beside, configs[beside] = check_sidecar(name, service, services, owners)
    check_scrapes(services, configs)
    for finding in findings:
        print(f"compose.yaml: {finding}", file=sys.stderr)
    print(f"compose.yaml: {len(services)} services, {len(sidecars)} sidecars, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
