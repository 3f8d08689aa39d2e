"""The spelling ``failback.client.consumelog.beside`` of what ``upload.beside`` has."""

from failback.client.consumelog.upload.beside import ShipperBeside as ShipperBeside
